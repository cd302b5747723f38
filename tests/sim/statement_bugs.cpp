#include "statement_bugs.hpp"

namespace rowlock::sim {
namespace {

constexpr statement_bug bugs[] = {
    {"take_without_probed_token", "take", "and token = $7", "and $7 = $7"},
    {"token_repeats", "acquire", "max(l.token, excluded.token - 1) + 1",
     "max(l.token, excluded.token - 1)"},
    {"permits_past_capacity", "take_permits", "capacity, 1999999999)",
     "capacity * 0 + 1999999999, 1999999999)"},
    {"newcomer_passes_the_queue", "acquire", "and ($7 = 1 or not", "and ($7 in (0, 1) or not"},
    {"last_waiter_first", "next_waiter", "order by w.ticket limit 1",
     "order by w.ticket desc limit 1"},
    {"reacquire_any_token", "reacquire", "and token = $7", "and $7 = $7"},
    {"reacquire_past_waiters", "reacquire", "and not exists (select 1 from rowlock_ticket",
     "or exists (select 1 from rowlock_ticket"},
    {"adopt_keeps_token", "adopt_lease", "f.floor) + 1", "f.floor)"},
    {"request_ends_at_once", "shorten_lease", "max(m.expires_at, ", "min(0, "},
    {"cancel_deletes_nothing", "cancel", "delete from rowlock_ticket\n where ",
     "update rowlock_ticket set priority = priority\n where "},
    {"entries_hide_free_lease", "entries", "case when q.weight is null then",
     "case when q.weight is null then 0 *"},
    {"session_not_deleted", "delete_session", "where id = $1", "where id = $1 and ended = 1"},
    {"extension_not_written", "extend_lease", "deadline = max(deadline + 1",
     "deadline = min(deadline"},
    {"reclaim_keeps_token", "reclaim_lease", "f.floor) + 1", "f.floor)"},
    {"shrink_keeps_permits", "shrink_permit", "set weight = $5", "set weight = $4 + 0 * $5"},
    {"arrivals_count_twice", "write_round", "set arrived = $3", "set arrived = $3 + 1"},
    {"departures_count_twice", "write_round", "departed = $4", "departed = $4 + 1"},
    {"force_in_silence", "bump_revision", "revision + 1", "revision + 0"},
    {"choice_ignored", "candidate", "w.session = coalesce($2, w.session)",
     "coalesce($2, w.session) is not null"},
    {"limit_comes_late", "overdue_leases", ">= p.max_hold_us", ">= 20 * p.max_hold_us"},
    {"permits_returned_short", "return_permits", "used - $2", "used - min($2, 1)"},
    {"lease_beside_modes", "acquire", "where l.used = 0 and", "where"},
    {"lease_served_beside_modes", "next_waiter", "l.used = 0 and l.capacity", "l.capacity"},
    {"mode_beside_lease", "take_permits", "and session is null and", "and"},
    {"mode_served_beside_lease", "use_permits", "and session is null and", "and"},
    {"modes_keep_the_token", "take_permits", "+ $5,", "+ 0 * $5,"},
};

}  // namespace

std::span<const statement_bug> statement_bugs() {
    return bugs;
}

}  // namespace rowlock::sim
