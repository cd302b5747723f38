#pragma once

#include "coordination/protocol/barrier/barrier_round.hpp"
#include "sql/statements.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Latches and double barriers in the tables: rounds, which are generations of a name, and their
/// parties. Like lease_protocol: no state, no retries; whether a session lives is judged by the
/// database's clock.
///
/// Every change of a round is a transaction that locks the round's row and applies the rules of
/// barrier_round to it; a change of which round is the latest locks the row of the name before (the
/// one with generation 0). So the changes of a round have an order, and each answer is given once.
namespace rowlock::protocol {

/// What a round is begun with.
struct round_terms {
    barrier_kind kind = barrier_kind::latch;
    std::int64_t size = 1;
    bool loss_counts = false;
};

/// A party of a round, as the client that made it names it.
struct party_id {
    std::string_view name;
    std::int64_t generation = 0;
    rowlock::grant_id id{};
};

struct round_state {
    std::int64_t generation = 0;
    barrier_round round{};
    std::int64_t absent = 0;      ///< parties that are needed alive, and whose session is not
    std::int64_t registered = 0;  ///< of a latch: parties that have not arrived
};

struct joining {
    enum class outcome : unsigned char {
        joined,
        no_round,      ///< there is none, or it takes no more parties
        session_dead,  ///< the caller's
        other_terms,   ///< the name is of the other kind, or the round under way has other terms
    };
    outcome what = outcome::no_round;
    round_state seen{};
};

/// Thread-safe. Repeat every call after a lost reply, with the same id.
class barrier_protocol {
public:
    explicit barrier_protocol(const sql::statement_set& statements);

    /// The state of a round; of the latest one for generation 0. One or two round trips.
    [[nodiscard]] std::optional<round_state> look(sql::connection& db, std::string_view name,
                                                  std::int64_t generation,
                                                  sql::deadline until) const;

    /// Begins a round, unless the latest one is pending, losses considered. Returns that round:
    /// joined, or no_round if it is another's. Seven to ten round trips.
    /// @param again an earlier attempt with this id may have begun one
    [[nodiscard]] joining begin(sql::connection& db, std::string_view name,
                                const round_terms& terms, grant_id begun_by, bool again,
                                sql::deadline until) const;
    /// Adds a party to a pending round of a latch. Six or seven round trips.
    [[nodiscard]] joining join(sql::connection& db, const party_id& party, session_id session,
                               party_stage stage, sql::deadline until) const;
    /// Adds a party that has entered to the latest round of a double barrier, or to a new one if
    /// that takes no more, or breaks because a party of it is lost. Seven to twelve round trips.
    [[nodiscard]] joining enter(sql::connection& db, std::string_view name,
                                const round_terms& terms, grant_id party, session_id session,
                                sql::deadline until) const;

    /// Each returns the state of the round after it, or nullopt if there is no such round or party.
    /// Six round trips, seven if the round is over then, two more for generation 0: that of the
    /// party.
    [[nodiscard]] std::optional<round_state> arrive(sql::connection& db, const party_id& party,
                                                    sql::deadline until) const;
    [[nodiscard]] std::optional<round_state> depart(sql::connection& db, const party_id& party,
                                                    sql::deadline until) const;
    /// The party counts as one whose session ended.
    [[nodiscard]] std::optional<round_state> lose(sql::connection& db, const party_id& party,
                                                  sql::deadline until) const;
    /// Takes back that a party has entered or registered, unless the round has given its answer,
    /// which it returns. Returns nullopt if the party is not in: then no attempt that was abandoned
    /// before will add it, however late its commit is seen. Waits for such a commit.
    [[nodiscard]] std::optional<round_state> withdraw(sql::connection& db, const party_id& party,
                                                      sql::deadline until) const;

    /// The sessions of parties that have expired and are not ended: end them first, each in a
    /// commit of its own. One round trip.
    [[nodiscard]] std::vector<session_id> expired_parties(sql::connection& db,
                                                          std::string_view name,
                                                          std::int64_t generation,
                                                          party_stage harmless,
                                                          sql::deadline until) const;
    /// Applies the loss of parties whose sessions have ended. Five round trips and one for each.
    [[nodiscard]] std::optional<barrier_round> sweep(sql::connection& db, std::string_view name,
                                                     std::int64_t generation,
                                                     sql::deadline until) const;
    /// Breaks a round if it is pending. Returns whether it is broken now.
    [[nodiscard]] bool reset(sql::connection& db, std::string_view name, std::int64_t generation,
                             sql::deadline until) const;
    /// For a generation that has no row: whether there was one, so that it was deleted. If not, it
    /// has not begun, as far as this node knows. One or two round trips.
    [[nodiscard]] bool is_past(sql::connection& db, std::string_view name, std::int64_t generation,
                               sql::deadline until) const;
    /// For the reaper: names with rounds that have not changed for so long, in byte order.
    [[nodiscard]] std::vector<std::string> names_with_old(sql::connection& db,
                                                          std::string_view after, int limit,
                                                          std::chrono::microseconds retention,
                                                          sql::deadline until) const;
    /// Deletes those of these rounds that are over, and the name if no round is left; applies
    /// losses to the others. Returns how many.
    std::int64_t delete_old(sql::connection& db, std::string_view name,
                            std::chrono::microseconds retention, sql::deadline until) const;

private:
    struct name_row {
        barrier_kind kind;
        std::int64_t latest;
    };
    /// Applies an event to a round, and returns the party's new stage.
    using change = std::function<party_stage(barrier_round&, party_stage)>;

    [[nodiscard]] std::optional<name_row> read_name(sql::connection& db, const sql::statement& how,
                                                    std::string_view name,
                                                    sql::deadline until) const;
    void make_name(sql::connection& db, std::string_view name, barrier_kind kind,
                   sql::deadline until) const;
    [[nodiscard]] std::optional<barrier_round> lock_round(sql::connection& db,
                                                          std::string_view name,
                                                          std::int64_t generation,
                                                          sql::deadline until) const;
    void write(sql::connection& db, std::string_view name, std::int64_t generation,
               const barrier_round& round, sql::deadline until) const;
    std::int64_t insert_round(sql::connection& db, std::string_view name, std::int64_t latest,
                              const barrier_round& round, grant_id begun_by,
                              sql::deadline until) const;
    [[nodiscard]] bool insert_party(sql::connection& db, const party_id& party, session_id session,
                                    party_stage stage, sql::deadline until) const;
    [[nodiscard]] std::optional<round_state> change_party(sql::connection& db,
                                                          const party_id& party,
                                                          const change& apply, bool opens,
                                                          sql::deadline until) const;
    [[nodiscard]] bool apply_losses(sql::connection& db, std::string_view name,
                                    std::int64_t generation, barrier_round& round,
                                    sql::deadline until) const;
    /// A round does not open with a party that is known to be lost. Returns whether one was.
    [[nodiscard]] bool apply_losses_before_opening(sql::connection& db, std::string_view name,
                                                   std::int64_t generation, barrier_round& round,
                                                   sql::deadline until) const;
    template <typename Attempt>
    joining under_the_name(sql::connection& db, std::string_view name, barrier_kind kind,
                           Attempt attempt, sql::deadline until) const;

    const sql::statement name_, lock_name_, make_name_, floor_, look_, lock_round_, insert_round_,
        set_latest_, write_round_, find_party_, insert_party_, set_stage_, delete_parties_,
        lost_parties_, expired_parties_, find_begun_, old_rounds_, delete_round_,
        delete_all_parties_, any_round_, forget_withdrawn_, old_names_, lift_floor_;
};

}  // namespace rowlock::protocol
