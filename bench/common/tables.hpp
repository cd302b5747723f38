#pragma once

#include <rowlock/client.hpp>

#include <string>

namespace bench {

/// rowlock's tables under a name of their own, for as long as this lives.
class tables {
public:
    /// Makes them.
    explicit tables(std::string url);
    /// Removes them; says so on standard error if it cannot.
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
