#include "lock/protocol/barrier/barrier_protocol.hpp"

#include "lock/protocol/lease/lease_protocol.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::protocol {
namespace {

using namespace std::chrono_literals;
using outcome = joining::outcome;

/// For so long a party that withdrew is remembered: longer than any call asks whether it has.
constexpr std::chrono::microseconds remembered = 10min;

barrier_round read_round(const sql::result& row) {
    return {.kind = static_cast<barrier_kind>(row.integer(0, 1)),
            .size = row.integer(0, 2),
            .loss_counts = row.integer(0, 3) != 0,
            .arrived = row.integer(0, 4),
            .departed = row.integer(0, 5),
            .opened = static_cast<answer>(row.integer(0, 6)),
            .closed = static_cast<answer>(row.integer(0, 7))};
}

std::vector<round_party> read_parties(const sql::result& rows) {
    std::vector<round_party> all;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.is_null(row, 10)) continue;
        all.push_back({.id = rows.integer<grant_id>(row, 10),
                       .session = rows.integer<session_id>(row, 11),
                       .stage = static_cast<party_stage>(rows.integer(row, 12)),
                       .holder = static_cast<round_party::fate>(rows.integer(row, 13))});
    }
    return all;
}

outcome outcome_of(admittance place) {
    if (place == admittance::refused) return outcome::other_terms;
    return place == admittance::none ? outcome::no_round : outcome::joined;
}

round_party* find(round_state& round, grant_id party) {
    const auto found = std::find_if(round.parties.begin(), round.parties.end(),
                                    [&](const round_party& each) { return each.id == party; });
    return found == round.parties.end() ? nullptr : &*found;
}

/// Those parties are lost whose sessions have ended, for good: expired ones are ended before.
round_state without_the_lost(round_state seen) {
    for (auto& each : seen.parties) {
        if (each.holder != round_party::fate::ended || !seen.round.suffers_from_losses()) continue;
        each.stage = seen.round.apply(barrier_event::lose, each.stage);
    }
    return seen;
}

}  // namespace

barrier_protocol::barrier_protocol(const sql::statement_set& statements)
    : lock_{statements("lock_rounds")},
      look_{statements("look_at_round")},
      insert_round_{statements("insert_round")},
      write_round_{statements("write_round")},
      insert_party_{statements("insert_party")},
      set_stage_{statements("set_party_stage")},
      forget_{statements("forget_parties")},
      old_rounds_{statements("old_rounds")},
      delete_round_{statements("delete_round")},
      floor_{statements("read_floor")},
      lift_floor_{statements("lift_floor")} {}

std::optional<round_state> barrier_protocol::look(sql::connection& db, const party_id& what,
                                                  sql::deadline until) const {
    const auto rows = run(db, look_, until, what.name, what.generation, what.id);
    if (rows.empty() || rows.integer(0, 0) == 0) return std::nullopt;
    return round_state{.generation = rows.integer(0, 0),
                       .round = read_round(rows),
                       .begun_by = rows.integer<grant_id>(0, 8),
                       .registered = rows.integer(0, 9),
                       .parties = read_parties(rows)};
}

/// Returns false if the name has no row.
bool barrier_protocol::lock(sql::connection& db, std::string_view name, sql::deadline until) const {
    return run(db, lock_, until, name).affected() > 0;
}

/// The row of a name is committed before any transaction locks it: who finds none knows that no
/// other has it locked.
joining barrier_protocol::admit(sql::connection& db, admission& what, sql::deadline until) const {
    for (;;) {
        if (auto done = admit_once(db, what, until)) return *done;
        if (what.generation != 0) return {};
        try {
            insert_round(db, what.name, {}, until);
        } catch (const error& failure) {
            if (!another_inserts(failure)) throw;
        }
    }
}

std::optional<joining> barrier_protocol::admit_once(sql::connection& db, admission& what,
                                                    sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    if (!lock(db, what.name, until)) return std::nullopt;
    auto done = decide(db, what, until);
    if (done.what != outcome::session_dead) transaction.commit(until);
    return done;
}

joining barrier_protocol::decide(sql::connection& db, admission& what, sql::deadline until) const {
    if (what.begun != 0) {
        auto begun = look(db, {.name = what.name, .generation = what.begun}, until);
        if (begun && begun->begun_by == what.id) return {outcome::joined, *std::move(begun)};
    }
    auto seen = look(db, {what.name, what.generation, what.id}, until);
    if (seen && seen->round.kind != what.terms.kind) return {.what = outcome::other_terms};
    if (seen && what.by && find(*seen, what.id) != nullptr) {
        return {outcome::joined, *std::move(seen)};
    }
    // No round is as one that has ended.
    auto after = without_the_lost(seen.value_or(round_state{.round = {.opened = answer::given}}));
    if (after.round.is_empty()) {
        after.round = what.terms;
        forget(db, what.name, after.generation, remembered, until);
    }
    const auto place = after.round.admits(what.terms, what.by.has_value(), what.generation != 0);
    const bool begins = place == admittance::begins;
    if (seen && begins) write(db, what.name, *seen, after, until);
    if (begins) {
        after = next(db, what, after.generation, until);
        what.begun = after.generation;
    }
    if (what.by && (begins || place == admittance::joins)) {
        if (what.stage == party_stage::arrived) after.round.arrive();
        if (!insert_party(db, what, after.generation, until)) {
            return {.what = outcome::session_dead};
        }
    }
    if (begins) {
        insert_round(db, what.name, after, until);
    } else if (seen) {
        write(db, what.name, *seen, after, until);
    }
    return {outcome_of(place), std::move(after)};
}

/// The round that follows the latest: of a number above all that were, also of those that the
/// reaper has deleted, which the floor covers.
round_state barrier_protocol::next(sql::connection& db, const admission& what, std::int64_t latest,
                                   sql::deadline until) const {
    return {.generation = std::max(latest, floor(db, until)) + 1,
            .round = what.terms,
            .begun_by = what.id};
}

bool barrier_protocol::insert_party(sql::connection& db, const admission& what,
                                    std::int64_t generation, sql::deadline until) const {
    return run(db, insert_party_, until, what.name, generation, what.id, *what.by,
               static_cast<std::int64_t>(what.stage))
               .affected() > 0;
}

std::int64_t barrier_protocol::floor(sql::connection& db, sql::deadline until) const {
    const auto row = run(db, floor_, until);
    if (row.empty()) throw no_token_floor();
    return row.integer(0, 0);
}

void barrier_protocol::insert_round(sql::connection& db, std::string_view name,
                                    const round_state& round, sql::deadline until) const {
    run(db, insert_round_, until, name, round.generation,
        static_cast<std::int64_t>(round.round.kind), round.round.size,
        round.round.loss_counts ? 1 : 0, round.round.arrived,
        static_cast<std::int64_t>(round.round.opened), round.begun_by);
}

/// A round that has ended keeps no parties that nothing depends on: a name in steady use has few.
void barrier_protocol::write(sql::connection& db, std::string_view name, const round_state& before,
                             const round_state& after, sql::deadline until) const {
    for (std::size_t i = 0; i < after.parties.size(); ++i) {
        const auto& [id, session, stage, holder] = after.parties[i];
        if (stage == before.parties[i].stage) continue;
        run(db, set_stage_, until, name, id, static_cast<std::int64_t>(stage));
    }
    if (after.round == before.round) return;
    const auto& round = after.round;
    run(db, write_round_, until, name, after.generation, round.arrived, round.departed,
        static_cast<std::int64_t>(round.opened), static_cast<std::int64_t>(round.closed),
        round.size, round.loss_counts ? 1 : 0);
    if (round.needs_no_parties()) {
        forget(db, name, after.generation, remembered, until);
    }
}

void barrier_protocol::forget(sql::connection& db, std::string_view name, std::int64_t generation,
                              std::chrono::microseconds withdrawn, sql::deadline until) const {
    run(db, forget_, until, name, generation, withdrawn.count());
}

std::optional<round_state> barrier_protocol::change(sql::connection& db, const party_id& of,
                                                    barrier_event what, sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    if (!lock(db, of.name, until)) return std::nullopt;
    const auto seen = look(db, of, until);
    if (!seen) return std::nullopt;
    auto after = without_the_lost(*seen);
    auto* const party = find(after, of.id);
    const bool missing = of.id != grant_id{} && party == nullptr;
    if (missing && (of.generation == 0 || !after.round.is_over())) return std::nullopt;
    if (party != nullptr) party->stage = after.round.apply(what, party->stage);
    if (what == barrier_event::reset) after.round.reset();
    const bool withdrawn = party != nullptr && party->stage == party_stage::withdrawn;
    write(db, of.name, *seen, after, until);
    transaction.commit(until);
    return withdrawn ? std::nullopt : std::optional{std::move(after)};
}

bool barrier_protocol::is_past(sql::connection& db, const party_id& what,
                               sql::deadline until) const {
    const auto latest = look(db, {.name = what.name}, until);
    return (latest && what.generation <= latest->generation) || what.generation <= floor(db, until);
}

std::vector<party_id> barrier_protocol::old_rounds(sql::connection& db, const party_id& after,
                                                   int limit, std::chrono::microseconds retention,
                                                   sql::deadline until) const {
    const auto found =
        run(db, old_rounds_, until, after.name, after.generation, retention.count(), limit);
    std::vector<party_id> all;
    for (std::size_t row = 0; row < found.rows(); ++row) {
        all.push_back(
            {.name = std::string{found.text(row, 0)}, .generation = found.integer(row, 1)});
    }
    return all;
}

bool barrier_protocol::retire(sql::connection& db, const party_id& old,
                              std::chrono::microseconds retention, sql::deadline until) const {
    const auto seen = look(db, old, until);
    if (seen && !seen->round.is_over()) {
        // Its parties may have been lost, and no client has looked since.
        const party_id pending{.name = old.name, .generation = seen->generation};
        if (!seen->parties.empty()) change(db, pending, barrier_event::none, until);
        return false;
    }
    if (seen && old.generation == 0) return false;
    sql::transaction_scope transaction{db, until};
    if (!lock(db, old.name, until)) return false;
    if (old.generation != 0) {
        if (run(db, delete_round_, until, old.name, old.generation, retention.count()).affected() ==
            0) {
            return false;
        }
        forget(db, old.name, old.generation, -retention, until);
    }
    const auto latest = look(db, {.name = old.name}, until);
    // Who waits for an answer of a deleted round must not find a later one of the same number: the
    // floor is committed with the deletion.
    if (!latest || latest->generation < old.generation) run(db, lift_floor_, until, old.generation);
    if (!latest) run(db, delete_round_, until, old.name, std::int64_t{0}, std::int64_t{0});
    transaction.commit(until);
    return old.generation != 0;
}

}  // namespace rowlock::protocol
