#include "statement_bugs.hpp"

namespace rowlock::sim {
namespace {

constexpr statement_bug bugs[] = {
    {"take_without_probed_token", "take", "and token = $7", "and $7 = $7"},
    {"token_repeats", "acquire", "max(l.token, excluded.token - 1) + 1",
     "max(l.token, excluded.token - 1)"},
    {"permits_past_capacity", "take_permits", "and $3 <= capacity - used", "and $3 = $3"},
    {"waiter_past_capacity", "use_permits", "and $2 <= capacity - used", "and $2 = $2"},
    {"release_frees_newer_grant", "release_unwaited", "and grant_id = $3", "and $3 = $3"},
    {"newcomer_passes_the_queue", "acquire", "and ($7 = 1 or not", "and ($7 in (0, 1) or not"},
    {"last_waiter_first", "next_waiter", "order by w.ticket limit 1",
     "order by w.ticket desc limit 1"},
    {"fence_without_token", "fence", "token = $3", "$3 = $3"},
    {"living_session_ended", "end_expired_session", "and expires_at <= ", "and 0 <= "},
    {"dead_session_revived", "heartbeat", "and ended = 0 and expires_at > ",
     "and ended in (0, 1) and 0 < "},
    {"permit_of_dead_session", "insert_permit", "m.id = $2 and ", "m.id = $2 or "},
    {"retain_any_token", "retain", "and token = $4", "and $4 = $4"},
    {"reacquire_any_grant", "reacquire", "and token = $4", "and $4 = $4"},
    {"permits_returned_short", "return_permits", "used - $2", "used - min($2, 1)"},
};

}  // namespace

std::span<const statement_bug> statement_bugs() {
    return bugs;
}

}  // namespace rowlock::sim
