#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

/// PostgreSQL has one queue of notifications for all databases of a server. A role without any
/// right on ours can make it long: it LISTENs, and stays in a transaction. LISTEN reads all of it,
/// seconds at 12 %, and the server interrupts that neither for a cancel nor for a closed
/// connection.
namespace rowlock::wakeup {

/// A process of the server, as one of its connections sees it.
struct server_process {
    std::int64_t number = 0;
    std::int64_t began = 0;  ///< µs since 1970
};

struct before_listen {
    bool queue_is_long = false;  ///< LISTEN could take long: poll
    bool abandoned_runs = false;
    server_process own{};
};

/// How long a LISTEN may take. With a short queue it takes a round trip.
inline constexpr std::chrono::seconds listen_patience{1};

/// Asks the server before a LISTEN. PostgreSQL only; one round trip.
/// @param abandoned the process of an earlier LISTEN, which was not answered in time
[[nodiscard]] before_listen ask_before_listen(sql::connection& db,
                                              const std::optional<server_process>& abandoned,
                                              sql::deadline until);

}  // namespace rowlock::wakeup
