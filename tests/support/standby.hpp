#pragma once

#include "support/server_process.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

namespace support {

/// The folder with initdb and similar programs of a PostgreSQL server's version.
[[nodiscard]] std::string programs_of(rowlock::sql::connection& server);

/// A streaming standby of the test PostgreSQL, for one test case.
class standby {
public:
    /// Null if the server is missing or is not one that scripts/with-servers started: the case then
    /// counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<standby> start();

    /// The URL of the test database, on the standby.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }
    /// Promotes it to a primary, and waits until it is one.
    void promote();

private:
    standby() = default;

    server_folder folder_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

}  // namespace support
