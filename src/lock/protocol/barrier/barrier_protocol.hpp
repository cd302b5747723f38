#pragma once

#include "lock/protocol/barrier/barrier_round.hpp"
#include "sql/statements.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Latches and double barriers in the tables: rounds, which are generations of a name, and their
/// parties. Like lease_protocol: no state, no retries; whether a session lives is judged by the
/// database's clock.
///
/// Every change is a transaction that locks the rounds of the name (the row with generation 0),
/// looks, applies the rules of barrier_round, and writes what differs. So the changes of a name
/// have an order, and each answer is given once.
namespace rowlock::protocol {

/// A party of a round, as the client that made it names it.
struct party_id {
    std::string name{};
    std::int64_t generation = 0;  ///< 0: the party's, which its client does not know
    rowlock::grant_id id{};
};

struct round_party {
    enum class fate : std::int64_t { lives = 0, expired = 1, ended = 2 };
    rowlock::grant_id id{};
    session_id session{};
    party_stage stage = party_stage::registered;
    fate holder = fate::lives;  ///< its session
};

struct round_state {
    std::int64_t generation = 0;
    barrier_round round{};
    rowlock::grant_id begun_by{};
    std::int64_t registered = 0;  ///< of a latch: parties that have not arrived
    /// The one that was asked for, and those that are needed alive and whose sessions are not.
    std::vector<round_party> parties{};
};

/// What a call asks of a name: a new round, a place in one, or both.
struct admission {
    std::string name{};
    barrier_round terms{};           ///< of a round that it begins
    std::int64_t generation = 0;     ///< that one alone; 0: the latest, or a new one
    rowlock::grant_id id{};          ///< of the party, or of the call that begins
    std::optional<session_id> by{};  ///< of the party; without: the call only begins
    party_stage stage = party_stage::arrived;
    std::int64_t begun = 0;  ///< which round an attempt has begun, or nearly; for the next one
};

struct joining {
    enum class outcome : unsigned char {
        joined,        ///< or begun; also by an earlier attempt
        no_round,      ///< there is none, or it takes no more parties; or nothing was to begin
        session_dead,  ///< the caller's
        other_terms,   ///< the name is of the other kind, or the round under way has other terms
    };
    outcome what = outcome::no_round;
    round_state seen{};  ///< of generation 0: no such round, or none of that kind
};

/// Thread-safe. Repeat every call after a lost reply, with the same id.
class barrier_protocol {
public:
    explicit barrier_protocol(const sql::statement_set& statements);

    /// A round; the party's, or the latest, for generation 0. One round trip.
    [[nodiscard]] std::optional<round_state> look(sql::connection& db, const party_id& what,
                                                  sql::deadline until) const;
    /// Begins or joins a round: of a latch it begins one unless the latest is pending, and joins
    /// the one that was named; of a double barrier it joins the latest, or a new one if that takes
    /// no more parties. A round does not open with a party that is known to be lost. Five to nine
    /// round trips, and four more for the first of a name.
    [[nodiscard]] joining admit(sql::connection& db, admission& what, sql::deadline until) const;
    /// Applies the losses of parties whose sessions have ended, and then an event to one, or to the
    /// round. Returns the round after it; nullopt if there is no such round or party, or if it has
    /// withdrawn: then no attempt that was abandoned before will add it, however late its commit is
    /// seen. Waits for such a commit. A party of a round that has ended need not be there. Four to
    /// seven round trips, and one for each loss.
    std::optional<round_state> change(sql::connection& db, const party_id& of, barrier_event what,
                                      sql::deadline until) const;
    /// For a generation that has no row: whether there was one, so that it was deleted. If not, it
    /// has not begun, as far as this node knows. One or two round trips.
    [[nodiscard]] bool is_past(sql::connection& db, const party_id& what,
                               sql::deadline until) const;

    /// For the reaper: rows that have not changed for so long, after this one, in order.
    [[nodiscard]] std::vector<party_id> old_rounds(sql::connection& db, const party_id& after,
                                                   int limit, std::chrono::microseconds retention,
                                                   sql::deadline until) const;
    /// Deletes such a round if it has ended, and the name with its last; else applies losses to it.
    /// Returns whether it deleted a round.
    [[nodiscard]] bool retire(sql::connection& db, const party_id& old,
                              std::chrono::microseconds retention, sql::deadline until) const;

private:
    [[nodiscard]] bool lock(sql::connection& db, std::string_view name, sql::deadline until) const;
    [[nodiscard]] std::optional<joining> admit_once(sql::connection& db, admission& what,
                                                    sql::deadline until) const;
    [[nodiscard]] joining decide(sql::connection& db, admission& what, sql::deadline until) const;
    [[nodiscard]] round_state next(sql::connection& db, const admission& what, std::int64_t latest,
                                   sql::deadline until) const;
    void write(sql::connection& db, std::string_view name, const round_state& before,
               const round_state& after, sql::deadline until) const;
    [[nodiscard]] bool insert_party(sql::connection& db, const admission& what,
                                    std::int64_t generation, sql::deadline until) const;
    void insert_round(sql::connection& db, std::string_view name, const round_state& round,
                      sql::deadline until) const;
    void forget(sql::connection& db, std::string_view name, std::int64_t generation,
                std::chrono::microseconds withdrawn, sql::deadline until) const;
    [[nodiscard]] std::int64_t floor(sql::connection& db, sql::deadline until) const;

    const sql::statement lock_, look_, insert_round_, write_round_, insert_party_, set_stage_,
        forget_, old_rounds_, delete_round_, floor_, lift_floor_;
};

}  // namespace rowlock::protocol
