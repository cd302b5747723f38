#pragma once

#include <rowlock/history.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The records of the history, folded into holds: who held a lock, from when to when, and how that
/// ended. The tool, its JSON and the page show the same. Texts come from other programs.
namespace rowlock::view {

using history_time = std::chrono::sys_time<std::chrono::microseconds>;

/// How a hold ended.
enum class ending : unsigned char {
    held,             ///< it has not: the tables say that it is held
    released,         ///< by its holder
    handed_over,      ///< by its holder, to the next waiter, or to the client that adopted it
    reclaimed,        ///< it became a hold of another session of its owner
    deadline_passed,  ///< its own deadline did
    session_expired,  ///< its client did not renew its session in time
    session_ended,    ///< its client ended its session
    expired,          ///< by its session or its deadline: the records do not say which
    forced,           ///< another client took it
    altered,          ///< the tables were changed by other means
    unknown,          ///< no record says: they begin later, were cut off, or recording was off
};
[[nodiscard]] const char* to_string(ending how) noexcept;

/// A request for the release of a hold.
struct asked_release {
    history_time at{};
    std::string by{};      ///< of a request at once also why
    std::string reason{};  ///< of a request within a time
    std::optional<history_time> until{};
    std::string db_user{};
};

/// One hold, upgraded or not.
struct past_hold {
    history_of of = history_of::lease;
    std::string name{};
    session_id session{};
    rowlock::grant_id grant_id{};  ///< 0: only its successor is recorded
    fencing_token token{};         ///< the last of its tokens that is recorded
    std::string owner{}, host{}, program{}, note{};
    std::int64_t pid = 0;                ///< 0, and the texts before it empty: not recorded
    std::int64_t permits = 0;            ///< of a semaphore
    std::optional<lock_mode> mode{};     ///< of a shared_mutex: the strongest that it had
    std::optional<history_time> from{};  ///< none: it began before these records
    history_time seen{};                 ///< the first record of it
    std::optional<history_time> to{};    ///< none: it is held, or its end is not recorded
    ending how = ending::unknown;
    std::optional<history_kind> begun{};                ///< as `from`
    std::optional<std::chrono::microseconds> waited{};  ///< in the queue before it
    std::optional<history_time> deadline{};             ///< its own, the latest that is recorded
    std::string ended_by{}, ended_by_login{};           ///< of one that was forced
    std::vector<asked_release> asked{};
    std::int64_t first_record = 0;  ///< its id

    [[nodiscard]] bool is_held() const noexcept { return how == ending::held; }
};

/// The holds that these records tell of, in the order in which they tell of them.
/// @param records of one name or of all, oldest first, as read_history() returns them
[[nodiscard]] std::vector<past_hold> holds_in(std::span<const history_record> records);

/// How it ended, in words, with who asked for its release.
[[nodiscard]] std::string text_of_end(const past_hold& hold);

struct past {
    std::vector<history_record> records{};  ///< that match the query
    std::vector<past_hold> holds{};
    history_time now{};  ///< the database's clock; without records the epoch
};

/// The records, and the holds of which they tell. One name's records do not say when a session
/// ended: that is looked up, by a round trip for each of the first sessions of which it matters.
/// @throws error as read_history()
[[nodiscard]] past read_past(const sql::connection_source& source, const history_query& query);

}  // namespace rowlock::view
