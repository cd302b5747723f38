#pragma once

#include <rowlock/client.hpp>

#include <string>

namespace bench {

/// rowlock's tables under a unique prefix, for the lifetime of this object.
class tables {
public:
    /// Makes the tables.
    explicit tables(std::string url);
    /// Removes the tables. A failure is reported on standard error.
    ~tables();
    tables(const tables&) = delete;
    tables& operator=(const tables&) = delete;

    [[nodiscard]] const std::string& url() const { return url_; }
    [[nodiscard]] const std::string& prefix() const { return prefix_; }
    [[nodiscard]] rowlock::sql::connection_source source() const;

private:
    std::string url_;
    std::string prefix_;
};

}  // namespace bench
