#pragma once

#include "cli/database.hpp"
#include "cli/exit_code.hpp"
#include "cli/json.hpp"
#include "cli/text.hpp"
#include "view/overview.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// How the tool shows semaphores, shared_mutexes and queues.
namespace rowlock::cli {

/// What `read` returns, or nothing if this user may not read the tables of semaphores: then a
/// warning says so.
template <typename Read>
auto if_allowed(Read read, const char* what = "semaphores and shared_mutexes")
    -> decltype(std::optional{read()}) {
    try {
        return read();
    } catch (const error& denied) {
        if (denied.kind() != errc::access_denied) throw;
        complain(std::string{what} + " are not shown: " + message_of(denied));
        return std::nullopt;
    }
}

/// A note for people, behind the owner that the holder or waiter was given.
[[nodiscard]] std::string note_of(const std::string& owner, const std::string& note);

[[nodiscard]] json waiter_to_json(const waiter_info& waiter);
[[nodiscard]] std::vector<std::string> waiter_cells(const waiter_info& waiter);
/// @param first the headings before those of waiter_cells()
[[nodiscard]] std::string queue_table(std::vector<std::string> first,
                                      const std::vector<std::vector<std::string>>& rows);

/// Which rows of a list are shown.
enum class rows_wanted : unsigned char { all, in_use, waited };

/// Part of a list of semaphores or of shared_mutexes.
struct counter_list {
    json array = json::array();
    std::vector<std::string> headings{};
    std::vector<std::vector<std::string>> cells{};
    bool more = false;
};

struct list_range {
    std::string prefix{};
    std::string after{};
    int limit = 1000;
    rows_wanted wanted = rows_wanted::all;
};

[[nodiscard]] counter_list list_of_semaphores(const database& in, client& locks,
                                              const list_range& range);
[[nodiscard]] counter_list list_of_shared_mutexes(const database& in, client& locks,
                                                  const list_range& range);

/// What live holders have of a counter, and how many permits or holds dead ones keep: these are not
/// held any more, and the next that asks takes them back.
struct live_semaphore {
    semaphore_info row{};  ///< `used` by live holders
    std::int64_t expired = 0;
};
struct live_shared_mutex {
    shared_mutex_info row{};
    std::int64_t expired = 0;
};

/// Permits of dead holders, if one of the rows is in use: it costs a connection.
class expired_holds {
public:
    template <typename Rows>
    expired_holds(const database& in, const Rows& rows) {
        if (std::ranges::any_of(rows, [](const auto& row) { return is_in_use(row); })) read(in);
    }
    [[nodiscard]] live_semaphore without(semaphore_info row) const;
    [[nodiscard]] live_shared_mutex without(shared_mutex_info row) const;

private:
    static bool is_in_use(const semaphore_info& row) { return row.used > 0; }
    static bool is_in_use(const shared_mutex_info& row) {
        return row.exclusive || row.upgradeable || row.shared > 0;
    }
    void read(const database& in);

    view::expired_permits permits_{};
};

[[nodiscard]] json to_json(const live_semaphore& one);

/// A semaphore or shared_mutex in full, with up to `limit` holders, and its queue.
struct counter_shown {
    json object{};
    std::string text{};
};

/// Returns nullopt if there is none of that name.
[[nodiscard]] std::optional<counter_shown> shown_semaphore(const database& in, client& locks,
                                                           const std::string& name, int limit);
[[nodiscard]] std::optional<counter_shown> shown_shared_mutex(const database& in, client& locks,
                                                              const std::string& name, int limit);

}  // namespace rowlock::cli
