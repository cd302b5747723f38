#pragma once

#include "support/server_process.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace support {

/// A real PgBouncer in front of the test PostgreSQL, for one test case.
class pgbouncer {
public:
    enum class pool_mode : unsigned char { session, transaction };

    /// Null if PgBouncer or the server is missing: the case then counts as skipped, or fails.
    /// `settings` are further lines of the section [pgbouncer].
    [[nodiscard]] static std::unique_ptr<pgbouncer> start(pool_mode mode,
                                                          const std::string& settings = {});

    /// The URL of the test database, through the pooler.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    pgbouncer() = default;

    server_folder folder_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

}  // namespace support
