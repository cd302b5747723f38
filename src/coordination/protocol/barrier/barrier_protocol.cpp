#include "coordination/protocol/barrier/barrier_protocol.hpp"

#include "coordination/protocol/lease/lease_protocol.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::protocol {
namespace {

using outcome = joining::outcome;

/// The columns of `look_at_round` and `lock_round`.
barrier_round read_round(const sql::result& row) {
    return {.kind = static_cast<barrier_kind>(row.integer(0, 1)),
            .size = row.integer(0, 2),
            .loss_counts = row.integer(0, 3) != 0,
            .arrived = row.integer(0, 4),
            .departed = row.integer(0, 5),
            .opened = static_cast<answer>(row.integer(0, 6)),
            .closed = static_cast<answer>(row.integer(0, 7))};
}

bool has_terms(const barrier_round& round, const round_terms& terms) {
    return round.kind == terms.kind && round.size == terms.size &&
           round.loss_counts == terms.loss_counts;
}

barrier_round begun_with(const round_terms& terms) {
    return {.kind = terms.kind, .size = terms.size, .loss_counts = terms.loss_counts};
}

}  // namespace

barrier_protocol::barrier_protocol(const sql::statement_set& statements)
    : name_{statements("barrier_name")},
      lock_name_{statements("lock_barrier_name")},
      make_name_{statements("make_barrier_name")},
      floor_{statements("read_floor")},
      look_{statements("look_at_round")},
      lock_round_{statements("lock_round")},
      insert_round_{statements("insert_round")},
      set_latest_{statements("set_latest_round")},
      write_round_{statements("write_round")},
      find_party_{statements("find_party")},
      insert_party_{statements("insert_party")},
      set_stage_{statements("set_party_stage")},
      delete_parties_{statements("delete_parties")},
      lost_parties_{statements("lost_parties")},
      expired_parties_{statements("expired_parties")},
      find_begun_{statements("find_begun_round")},
      old_rounds_{statements("old_rounds")},
      delete_round_{statements("delete_round")},
      delete_all_parties_{statements("delete_all_parties")},
      any_round_{statements("any_round")},
      forget_withdrawn_{statements("forget_withdrawn")},
      old_names_{statements("names_with_old_rounds")},
      lift_floor_{statements("lift_floor")} {}

std::optional<barrier_protocol::name_row> barrier_protocol::read_name(sql::connection& db,
                                                                      const sql::statement& how,
                                                                      std::string_view name,
                                                                      sql::deadline until) const {
    const auto row = run(db, how, until, name);
    if (row.empty()) return std::nullopt;
    return name_row{.kind = static_cast<barrier_kind>(row.integer(0, 0)),
                    .latest = row.integer(0, 1)};
}

std::optional<round_state> barrier_protocol::look(sql::connection& db, std::string_view name,
                                                  std::int64_t generation,
                                                  sql::deadline until) const {
    if (generation == 0) {
        const auto found = read_name(db, name_, name, until);
        if (!found || found->latest == 0) return std::nullopt;
        generation = found->latest;
    }
    const auto row = run(db, look_, until, name, generation);
    if (row.empty()) return std::nullopt;
    return round_state{.generation = generation,
                       .round = read_round(row),
                       .absent = row.integer(0, 8),
                       .registered = row.integer(0, 9)};
}

void barrier_protocol::make_name(sql::connection& db, std::string_view name, barrier_kind kind,
                                 sql::deadline until) const {
    try {
        run(db, make_name_, until, name, static_cast<std::int64_t>(kind));
    } catch (const error& failure) {
        if (!another_inserts(failure)) throw;
    }
}

std::optional<barrier_round> barrier_protocol::lock_round(sql::connection& db,
                                                          std::string_view name,
                                                          std::int64_t generation,
                                                          sql::deadline until) const {
    const auto row = run(db, lock_round_, until, name, generation);
    if (row.empty()) return std::nullopt;
    return read_round(row);
}

/// Deletes the rows of parties that nothing depends on any more: a name in steady use keeps few.
///
/// Also run for a change that an earlier attempt has made, whose commit was not confirmed (a
/// standby that does not answer, a log that is not on disk): a commit that writes is confirmed
/// after it.
void barrier_protocol::write(sql::connection& db, std::string_view name, std::int64_t generation,
                             const barrier_round& round, sql::deadline until) const {
    if (round.needs_no_parties()) run(db, delete_parties_, until, name, generation);
    run(db, write_round_, until, name, generation, round.arrived, round.departed,
        static_cast<std::int64_t>(round.opened), static_cast<std::int64_t>(round.closed),
        round.size, round.loss_counts ? 1 : 0);
}

/// The row of the name is locked: no other client begins a round, and the reaper deletes none of
/// its last. A floor above the latest generation is that of a row of this name that was deleted.
std::int64_t barrier_protocol::insert_round(sql::connection& db, std::string_view name,
                                            std::int64_t latest, const barrier_round& round,
                                            grant_id begun_by, sql::deadline until) const {
    const auto floor = run(db, floor_, until);
    if (floor.empty()) throw no_token_floor();
    const std::int64_t generation = std::max(latest, floor.integer(0, 0)) + 1;
    run(db, insert_round_, until, name, generation, static_cast<std::int64_t>(round.kind),
        round.size, round.loss_counts ? 1 : 0, begun_by);
    run(db, set_latest_, until, name, generation);
    return generation;
}

/// Returns false if the session is dead.
bool barrier_protocol::insert_party(sql::connection& db, const party_id& party, session_id session,
                                    party_stage stage, sql::deadline until) const {
    return run(db, insert_party_, until, party.name, party.generation, party.id, session,
               static_cast<std::int64_t>(stage))
               .affected() > 0;
}

/// Calls `attempt(row)` with the row of the name locked; makes that row if it is missing.
template <typename Attempt>
joining barrier_protocol::under_the_name(sql::connection& db, std::string_view name,
                                         barrier_kind kind, Attempt attempt,
                                         sql::deadline until) const {
    for (;;) {
        if (!read_name(db, name_, name, until)) make_name(db, name, kind, until);
        sql::transaction_scope transaction{db, until};
        const auto found = read_name(db, lock_name_, name, until);
        if (!found) continue;  // the reaper has deleted it since
        if (found->kind != kind) return {.what = outcome::other_terms};
        auto done = attempt(*found);
        if (done.what == outcome::joined) transaction.commit(until);
        return done;
    }
}

joining barrier_protocol::begin(sql::connection& db, std::string_view name,
                                const round_terms& terms, grant_id begun_by, bool again,
                                sql::deadline until) const {
    return under_the_name(
        db, name, terms.kind,
        [&](const name_row& of) -> joining {
            if (again) {
                const auto mine = run(db, find_begun_, until, name, begun_by);
                if (!mine.empty()) {
                    run(db, set_latest_, until, name, of.latest);  // as in write()
                    return {.what = outcome::joined, .seen = {.generation = mine.integer(0, 0)}};
                }
            }
            if (of.latest > 0) {
                auto last = lock_round(db, name, of.latest, until);
                if (last) static_cast<void>(apply_losses(db, name, of.latest, *last, until));
                if (last && last->opened == answer::pending) {
                    return {.seen = {.generation = of.latest, .round = *last}};
                }
            }
            const auto round = begun_with(terms);
            const auto generation = insert_round(db, name, of.latest, round, begun_by, until);
            return {.what = outcome::joined, .seen = {.generation = generation, .round = round}};
        },
        until);
}

joining barrier_protocol::join(sql::connection& db, const party_id& party, session_id session,
                               party_stage stage, sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    auto round = lock_round(db, party.name, party.generation, until);
    if (!round) return {};
    if (round->kind != barrier_kind::latch) return {.what = outcome::other_terms};
    const round_state before{.generation = party.generation, .round = *round};
    const bool known = !run(db, find_party_, until, party.name, party.id).empty();
    // What is open or broken stays so: there is nothing to arrive at, and nothing to break.
    if (known || round->opened != answer::pending) {
        write(db, party.name, party.generation, *round, until);
        transaction.commit(until);
        return {.what = known ? outcome::joined : outcome::no_round, .seen = before};
    }
    if (!insert_party(db, party, session, stage, until)) return {.what = outcome::session_dead};
    if (stage == party_stage::arrived) {
        static_cast<void>(
            apply_losses_before_opening(db, party.name, party.generation, *round, until));
        round->arrive();
        write(db, party.name, party.generation, *round, until);
    }
    transaction.commit(until);
    return {.what = outcome::joined, .seen = {.generation = party.generation, .round = *round}};
}

joining barrier_protocol::enter(sql::connection& db, std::string_view name,
                                const round_terms& terms, grant_id party, session_id session,
                                sql::deadline until) const {
    return under_the_name(
        db, name, terms.kind,
        [&](const name_row& of) -> joining {
            // An earlier attempt, whose reply was lost.
            const auto known = run(db, find_party_, until, name, party);
            if (!known.empty()) {
                const auto generation = known.integer(0, 0);
                const auto round = lock_round(db, name, generation, until);
                if (!round) return {};
                write(db, name, generation, *round, until);
                return {.what = outcome::joined,
                        .seen = {.generation = generation, .round = *round}};
            }
            std::int64_t generation = of.latest;
            auto round = generation > 0 ? lock_round(db, name, generation, until) : std::nullopt;
            if (round) {
                static_cast<void>(apply_losses_before_opening(db, name, generation, *round, until));
            }
            const bool joins = round && round->takes_parties();
            if (joins && round->arrived == 0) {  // all that had entered have left again
                round->size = terms.size;
                round->loss_counts = terms.loss_counts;
                run(db, forget_withdrawn_, until, name, generation);
            }
            if (joins && !has_terms(*round, terms)) {
                return {.what = outcome::other_terms,
                        .seen = {.generation = generation, .round = *round}};
            }
            if (!joins) {
                round = begun_with(terms);
                generation = insert_round(db, name, of.latest, *round, party, until);
            }
            if (!insert_party(db, {.name = name, .generation = generation, .id = party}, session,
                              party_stage::arrived, until)) {
                return {.what = outcome::session_dead};
            }
            round->arrive();
            write(db, name, generation, *round, until);
            return {.what = outcome::joined, .seen = {.generation = generation, .round = *round}};
        },
        until);
}

/// Locks a round, and applies an event to it and to one party. A party that is not there has none;
/// the rows of a round that is over are deleted.
std::optional<round_state> barrier_protocol::change_party(sql::connection& db,
                                                          const party_id& party,
                                                          const change& apply, bool opens,
                                                          sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    std::int64_t generation = party.generation;
    if (generation == 0) {
        // An entry whose commit is under way has this row locked, perhaps for hours (a commit that
        // waits for a standby): after it the party is there, or will never be.
        if (!read_name(db, lock_name_, party.name, until)) return std::nullopt;
        const auto seen = run(db, find_party_, until, party.name, party.id);
        if (seen.empty()) return std::nullopt;
        generation = seen.integer(0, 0);
    }
    auto round = lock_round(db, party.name, generation, until);
    if (!round) return std::nullopt;
    const auto report = [&] {
        write(db, party.name, generation, *round, until);
        transaction.commit(until);
        return round_state{.generation = generation, .round = *round};
    };
    auto found = run(db, find_party_, until, party.name, party.id);
    if (found.empty()) {
        if (!round->is_over()) return std::nullopt;
        return report();
    }
    if (opens && apply_losses_before_opening(db, party.name, generation, *round, until)) {
        if (round->is_over()) {  // by the losses: the event comes too late
            transaction.commit(until);
            return round_state{.generation = generation, .round = *round};
        }
        found = run(db, find_party_, until, party.name, party.id);  // perhaps it was lost as well
    }
    const auto before = static_cast<party_stage>(found.integer(0, 1));
    const auto after = apply(*round, before);
    if (after != before) {
        run(db, set_stage_, until, party.name, party.id, static_cast<std::int64_t>(after));
    }
    const auto state = report();
    if (after == party_stage::withdrawn) return std::nullopt;
    return state;
}

std::optional<round_state> barrier_protocol::arrive(sql::connection& db, const party_id& party,
                                                    sql::deadline until) const {
    const auto apply = [](barrier_round& round, party_stage at) {
        if (at != party_stage::registered) return at;
        round.arrive();
        return party_stage::arrived;
    };
    return change_party(db, party, apply, true, until);
}

std::optional<round_state> barrier_protocol::depart(sql::connection& db, const party_id& party,
                                                    sql::deadline until) const {
    const auto apply = [](barrier_round& round, party_stage at) {
        if (at >= party_stage::departed) return at;
        round.depart();
        return party_stage::departed;
    };
    return change_party(db, party, apply, false, until);
}

std::optional<round_state> barrier_protocol::lose(sql::connection& db, const party_id& party,
                                                  sql::deadline until) const {
    const auto apply = [](barrier_round& round, party_stage at) { return round.lose(at); };
    return change_party(db, party, apply, false, until);
}

/// The row of a withdrawn party stays until its round is deleted: one that is not there, in a round
/// that opened, was in.
std::optional<round_state> barrier_protocol::withdraw(sql::connection& db, const party_id& party,
                                                      sql::deadline until) const {
    const auto apply = [](barrier_round& round, party_stage at) {
        const bool only_registered =
            round.kind == barrier_kind::latch && at == party_stage::registered;
        const bool goes = only_registered || (round.kind == barrier_kind::double_barrier &&
                                              at == party_stage::arrived && round.withdraw());
        return goes ? party_stage::withdrawn : at;
    };
    return change_party(db, party, apply, false, until);
}

std::vector<session_id> barrier_protocol::expired_parties(sql::connection& db,
                                                          std::string_view name,
                                                          std::int64_t generation,
                                                          party_stage harmless,
                                                          sql::deadline until) const {
    const auto found =
        run(db, expired_parties_, until, name, generation, static_cast<std::int64_t>(harmless));
    std::vector<session_id> all;
    for (std::size_t row = 0; row < found.rows(); ++row) {
        all.push_back(found.integer<session_id>(row, 0));
    }
    return all;
}

std::optional<barrier_round> barrier_protocol::sweep(sql::connection& db, std::string_view name,
                                                     std::int64_t generation,
                                                     sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    auto round = lock_round(db, name, generation, until);
    if (!round || round->is_over()) return round;
    static_cast<void>(apply_losses(db, name, generation, *round, until));
    transaction.commit(until);
    return round;
}

/// Applies to a locked round that its parties with ended sessions are lost. Those stay ended: what
/// this reads is true until the commit.
bool barrier_protocol::apply_losses(sql::connection& db, std::string_view name,
                                    std::int64_t generation, barrier_round& round,
                                    sql::deadline until) const {
    if (!round.suffers_from_losses()) return false;
    const auto lost = run(db, lost_parties_, until, name, generation,
                          static_cast<std::int64_t>(round.harmless()));
    for (std::size_t row = 0; row < lost.rows(); ++row) {
        const auto before = static_cast<party_stage>(lost.integer(row, 1));
        const auto after = round.lose(before);
        if (after == before) continue;
        run(db, set_stage_, until, name, lost.integer<grant_id>(row, 0),
            static_cast<std::int64_t>(after));
    }
    if (lost.rows() > 0) write(db, name, generation, round, until);
    return lost.rows() > 0;
}

bool barrier_protocol::reset(sql::connection& db, std::string_view name, std::int64_t generation,
                             sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    auto round = lock_round(db, name, generation, until);
    if (!round) return false;
    if (round->opened == answer::pending) {
        static_cast<void>(apply_losses(db, name, generation, *round, until));
        round->reset();
    } else if (round->opened != answer::broken) {
        return false;
    }
    write(db, name, generation, *round, until);
    transaction.commit(until);
    return round->opened == answer::broken;
}

bool barrier_protocol::is_past(sql::connection& db, std::string_view name, std::int64_t generation,
                               sql::deadline until) const {
    const auto found = read_name(db, name_, name, until);
    if (found && generation <= found->latest) return true;
    const auto floor = run(db, floor_, until);
    return !floor.empty() && generation <= floor.integer(0, 0);
}

bool barrier_protocol::apply_losses_before_opening(sql::connection& db, std::string_view name,
                                                   std::int64_t generation, barrier_round& round,
                                                   sql::deadline until) const {
    if (round.opened != answer::pending || round.arrived + 1 < round.size) return false;
    return apply_losses(db, name, generation, round, until);
}

std::int64_t barrier_protocol::delete_old(sql::connection& db, std::string_view name,
                                          std::chrono::microseconds retention,
                                          sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    const auto found = read_name(db, lock_name_, name, until);
    if (!found) return 0;
    std::int64_t deleted = 0;
    const auto old = run(db, old_rounds_, until, name, retention.count());
    for (std::size_t row = 0; row < old.rows(); ++row) {
        const auto generation = old.integer(row, 0);
        auto round = lock_round(db, name, generation, until);
        if (!round) continue;
        if (!round->is_over()) {  // its parties may have been lost, and no client has looked since
            static_cast<void>(apply_losses(db, name, generation, *round, until));
            continue;
        }
        run(db, delete_round_, until, name, generation);
        run(db, delete_all_parties_, until, name, generation);
        ++deleted;
    }
    if (run(db, any_round_, until, name).empty()) {
        // A party that waits for an answer of a deleted round must not find a later one of the same
        // number: the floor is committed with the deletion.
        run(db, lift_floor_, until, found->latest);
        run(db, delete_round_, until, name, std::int64_t{0});
    }
    transaction.commit(until);
    return deleted;
}

std::vector<std::string> barrier_protocol::names_with_old(sql::connection& db,
                                                          std::string_view after, int limit,
                                                          std::chrono::microseconds retention,
                                                          sql::deadline until) const {
    const auto found = run(db, old_names_, until, after, retention.count(), limit);
    std::vector<std::string> names;
    for (std::size_t row = 0; row < found.rows(); ++row) names.emplace_back(found.text(row, 0));
    return names;
}

}  // namespace rowlock::protocol
