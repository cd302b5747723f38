#pragma once

#include <rowlock/sql/connection.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::sql {

/// A session setting of a borrowed connection that we changed for as long as we have it.
struct changed_settings {
    struct change {
        std::string variable;
        std::int64_t before;
        std::int64_t ours;
        pid_t process;  ///< a forked child has nothing to put back
    };
    std::optional<change> idle_limit;
    /// The limit that is in force, ours or the caller's own; read once per connection.
    std::optional<std::chrono::seconds> idle_limit_in_force;
};

/// Makes the server end the connection when a transaction on it has been idle for this long; a
/// shorter limit of the caller stays. Whole seconds, rounded up. MySQL and MariaDB only; two round
/// trips at the first call on a connection.
void limit_idle_time(connection& db, std::chrono::milliseconds longest, deadline until);

/// The same if the limit in force differs from the one we know: another user has set it since. No
/// round trip otherwise.
void limit_idle_time_again(connection& db, std::int64_t in_force, std::chrono::milliseconds longest,
                           deadline until);

/// The session variable of that limit.
[[nodiscard]] std::string_view idle_limit_name(bool mariadb) noexcept;

}  // namespace rowlock::sql
