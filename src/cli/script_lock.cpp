#include "cli/script_lock.hpp"

#include "cli/nesting.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/text.hpp"
#include "lock/client/retry_limits.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/server_identity.hpp"
#include <rowlock/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace rowlock::cli {
namespace {

using protocol::counter_kind;
using std::chrono::microseconds;
using outcome = protocol::attempt::outcome;

/// Serves the head of the queue, and wakes whom it serves. Returns whether anything was granted.
bool serve(sql::connection& db, const link& to, const std::string& name,
           protocol::queue_head expected, sql::deadline until) {
    bool any = false;
    for (bool more = true; more;) {
        const auto served = to.queue().serve(db, name, expected, until);
        more = served.more;
        for (const auto& each : served.waiters) {
            any = any || each.granted();
            to.queue().notify_grantee(db, each, until);
        }
    }
    return any;
}

/// Ends a session that has expired, in a commit of its own: only then may its holds change.
void end_expired(sql::connection& db, const link& to, session_id session, sql::deadline until) {
    to.protocol().sessions().end_expired(db, session, until);
    serve_after(db, to, session, until);
}

/// Takes back what holders of the lock that have ended have. Returns whether there were some.
bool take_back(sql::connection& db, const link& to, const std::string& name,
               const protocol::permit_holders& holders, sql::deadline until) {
    bool any = false;
    if (const auto& sole = holders.sole; sole && (sole->gone || sole->expired)) {
        if (sole->expired) end_expired(db, to, sole->session, until);
        to.queue().clear_sole(db, name, sole->token, sole->session, until);
        any = true;
    }
    if (holders.expired) {
        for (const auto id : to.semaphores().expired_holders(db, name, until)) {
            end_expired(db, to, id, until);  // sweeps as well
            any = true;
        }
    }
    if (!any && !holders.over) return false;
    return to.semaphores().sweep(db, name, until) > 0 || any;
}

/// The request with the time limit of its place in the queue. Not exact: the command began to wait
/// before it enqueues. None in a cluster: the member that serves may have another clock than this.
protocol::grant_request limited(protocol::grant_request request, const acquire_options& options,
                                const link& to, sql::connection& db, sql::deadline until) {
    if (!options.wait) return request;
    const auto server = to.protocol().sessions().server_of(db, until).value_or("");
    if (!sql::identifies_cluster(server)) request.limit_us = microseconds{*options.wait}.count();
    return request;
}

/// @throws failure if a `rowlock run` that we run under holds the lock, or a part of it
void refuse_holds_above_us(sql::connection& db, const link& to, const std::string& name,
                           sql::deadline until) {
    if (const auto row = to.protocol().inspect(db, name, until)) refuse_to_wait_for_ourselves(*row);
    for (const auto& each : to.semaphores().holders(db, name, most_holders, until)) {
        refuse_to_wait_for_ourselves(name, each.shown.who, each.shown.token);
    }
}

class script_lease final : public script_lock {
public:
    script_lease(const link& to, const acquire_options& options) : link_{to}, options_{options} {}

    void require_kind(sql::connection& db, sql::deadline until) override {
        if (link_.semaphores().exists(db, name(), counter_kind::semaphore, until)) {
            throw of_another_kind(name());
        }
    }

    void require_another_holder(sql::connection& db, sql::deadline until) override {
        refuse_holds_above_us(db, link_, name(), until);
    }

    std::optional<protocol::attempt> look(sql::connection& db, sql::deadline until) override {
        const auto seen = link_.protocol().probe(db, name(), session_id{}, until);
        if (seen.free && !seen.waited) return std::nullopt;
        return in_the_way(db, seen, {}, until);
    }

    protocol::attempt take(sql::connection& db, const script_hold& hold,
                           sql::deadline until) override {
        auto answer = link_.protocol().acquire(db, request(hold), until);
        if (answer.what == outcome::held) return in_the_way(db, answer.seen, hold, until);
        return answer;
    }

    std::optional<std::int64_t> find_grant(sql::connection& db, const script_hold& hold,
                                           sql::deadline until) override {
        return link_.protocol().find_grant(db, name(), hold.session, hold.grant_id, until);
    }

    void enqueue(sql::connection& db, const script_hold& hold, sql::deadline until) override {
        link_.queue().enqueue(db, limited(request(hold), options_, link_, db, until), until);
    }

    place_in_line find_place(sql::connection& db, const script_hold& hold,
                             sql::deadline until) override {
        const auto seen = link_.queue().entries_of(db, hold.session, until);
        const auto mine =
            std::ranges::find(seen.waiting, hold.grant_id, &protocol::queue_entry::grant_id);
        if (mine == seen.waiting.end()) return {.session_live = seen.session_live};
        return {.session_live = seen.session_live,
                .there = true,
                .position = mine->position,
                .remaining = mine->remaining,
                .ticket = mine->ticket,
                .behind_watermark = mine->behind_watermark,
                .free = mine->servable,
                .holder_expired = mine->holder_expired,
                .counted = mine->counted,
                .holder_session = mine->holder_session};
    }

    bool serve_first(sql::connection& db, const place_in_line& seen, sql::deadline until) override {
        if (seen.behind_watermark) link_.queue().reset_watermark(db, name(), seen.ticket, until);
        if (seen.holder_expired) {
            end_expired(db, link_, seen.holder_session, until);
            return true;
        }
        if (seen.free) return serve_next(db, until);
        if (!seen.counted) return false;
        const auto holders = link_.semaphores().holders_of(db, name(), until);
        if (!take_back(db, link_, name(), holders, until)) return false;
        serve_next(db, until);
        return true;
    }

    bool cancel(sql::connection& db, const script_hold& hold, sql::deadline until) override {
        return !link_.queue().cancel(db, std::array{hold.grant_id}, until).empty();
    }

    std::optional<protocol::queue_grant> served(sql::connection& db, const script_hold& hold,
                                                sql::deadline until) override {
        return link_.queue().read_served(db, name(), hold.session, hold.grant_id, until);
    }

    bool serve_next(sql::connection& db, sql::deadline until) override {
        return serve(db, link_, name(), protocol::queue_head::sole, until);
    }

    bool give_back(sql::connection& db, const script_hold& hold, sql::deadline until) override {
        const auto done =
            link_.queue().release(db, name(), hold.session, hold.grant_id, true, until);
        // Serves a waiter that enqueued too late for the release to see it.
        if (done.next) {
            link_.queue().notify_grantee(db, *done.next, until);
        } else {
            serve_next(db, until);
        }
        link_.protocol().sessions().remove(db, hold.session, until);
        return done.freed;
    }

    std::optional<std::int64_t> renew(sql::connection& db, const script_hold& hold,
                                      std::chrono::milliseconds duration,
                                      sql::deadline until) override {
        return link_.protocol().renew(db, name(), hold.session, hold.grant_id, duration,
                                      session_slack, until);
    }

    std::optional<holder_info> holder(sql::connection& db, rowlock::grant_id grant_id,
                                      sql::deadline until) override {
        const auto row = link_.protocol().inspect(db, name(), until);
        if (!row || !row->holder || row->holder->grant_id != grant_id) return std::nullopt;
        return row->holder;
    }

private:
    [[nodiscard]] const std::string& name() const noexcept { return options_.name; }

    [[nodiscard]] protocol::grant_request request(const script_hold& hold) const {
        return {.name = name(),
                .session = hold.session,
                .grant_id = hold.grant_id,
                .thread = {},
                .note = options_.note,
                .deadline_us = microseconds{options_.duration}.count()};
    }

    protocol::attempt in_the_way(sql::connection& db, const protocol::lease_probe& seen,
                                 const script_hold& hold, sql::deadline until) {
        if (hold.session != session_id{} && seen.session == hold.session &&
            seen.grant_id == hold.grant_id) {
            // An earlier attempt, whose reply was lost, has been committed since.
            const auto token = find_grant(db, hold, until);
            return {token ? outcome::granted : outcome::contested, token.value_or(0), seen};
        }
        if (seen.holder_expired) {
            end_expired(db, link_, seen.session, until);
            return {outcome::contested, 0, seen};
        }
        if (seen.counted && !seen.waited) {
            const auto holders = link_.semaphores().holders_of(db, name(), until);
            if (take_back(db, link_, name(), holders, until)) return {outcome::contested, 0, seen};
        }
        return {outcome::held, 0, seen};
    }

    const link& link_;
    const acquire_options& options_;
};

/// Permits of a semaphore, or a shared hold.
class script_permits final : public script_lock {
public:
    script_permits(const link& to, const acquire_options& options)
        : link_{to}, options_{options}, wanted_{wanted_by(options.kind)} {}

    /// The first program that uses a limit makes it; later only an operator changes it.
    void require_kind(sql::connection& db, sql::deadline until) override {
        if (!options_.kind.limit) return;
        const auto limit = *options_.kind.limit;
        if (link_.semaphores().create(db, name(), limit, until)) return;
        const auto seen = link_.semaphores().inspect(db, name(), counter_kind::semaphore, until);
        if (seen) require_capacity(name(), seen->capacity, limit);
    }

    void require_another_holder(sql::connection& db, sql::deadline until) override {
        if (wanted_.of == counter_kind::shared_mutex) {
            refuse_holds_above_us(db, link_, name(), until);
            return;
        }
        for (const auto& each : link_.semaphores().holders(db, name(), most_holders, until)) {
            if (permits_above({each.shown}) > 0) throw would_wait_for_itself(name());
        }
    }

    std::optional<protocol::attempt> look(sql::connection& /*db*/,
                                          sql::deadline /*until*/) override {
        return std::nullopt;  // an attempt that fails writes nothing
    }

    protocol::attempt take(sql::connection& db, const script_hold& hold,
                           sql::deadline until) override {
        protocol::attempt answer;
        try {
            answer = link_.semaphores().acquire(db, request(hold), until);
        } catch (const error& failed) {
            // An earlier attempt, whose reply was lost, has been committed since: find_grant().
            if (failed.kind() != errc::unique_violation) throw;
            return answer;
        }
        if (answer.what != outcome::held) return answer;
        const auto holders = link_.semaphores().holders_of(db, name(), until);
        // Another client may be taking them back, or has done so since the attempt.
        if (take_back(db, link_, name(), holders, until) ||
            (!answer.seen.waited && holders.may_have(wanted_.count) &&
             sweeps_.meet(std::chrono::steady_clock::now()))) {
            answer.what = outcome::contested;
        }
        return answer;
    }

    std::optional<std::int64_t> find_grant(sql::connection& db, const script_hold& hold,
                                           sql::deadline until) override {
        return link_.semaphores().find_grant(db, name(), hold.session, hold.grant_id, until);
    }

    void enqueue(sql::connection& db, const script_hold& hold, sql::deadline until) override {
        link_.queue().enqueue(db, limited(request(hold), options_, link_, db, until), until);
    }

    place_in_line find_place(sql::connection& db, const script_hold& hold,
                             sql::deadline until) override {
        const auto seen = link_.queue().entries_of(db, hold.session, until);
        const auto mine =
            std::ranges::find(seen.waiting, hold.grant_id, &protocol::queue_entry::grant_id);
        if (mine == seen.waiting.end()) return {.session_live = seen.session_live};
        holders_ = link_.semaphores().holders_of(db, name(), until);
        return {.session_live = seen.session_live,
                .there = true,
                .position = mine->position,
                .remaining = holders_.remaining,
                .ticket = mine->ticket,
                .behind_watermark = mine->behind_watermark,
                .free = mine->servable};
    }

    bool serve_first(sql::connection& db, const place_in_line& seen, sql::deadline until) override {
        if (seen.behind_watermark) link_.queue().reset_watermark(db, name(), seen.ticket, until);
        const bool taken_back = take_back(db, link_, name(), holders_, until);
        return (seen.free || taken_back) && (serve_next(db, until) || taken_back);
    }

    bool cancel(sql::connection& db, const script_hold& hold, sql::deadline until) override {
        return !link_.queue().cancel(db, std::array{hold.grant_id}, until).empty();
    }

    std::optional<protocol::queue_grant> served(sql::connection& db, const script_hold& hold,
                                                sql::deadline until) override {
        return link_.semaphores().served(db, name(), hold.session, hold.grant_id, until);
    }

    bool serve_next(sql::connection& db, sql::deadline until) override {
        return serve(db, link_, name(), protocol::queue_head::counted, until);
    }

    bool give_back(sql::connection& db, const script_hold& hold, sql::deadline until) override {
        const bool freed =
            link_.semaphores().release(db, name(), hold.session, hold.grant_id, 0, until);
        serve_next(db, until);
        link_.protocol().sessions().remove(db, hold.session, until);
        return freed;
    }

    std::optional<std::int64_t> renew(sql::connection& db, const script_hold& hold,
                                      std::chrono::milliseconds duration,
                                      sql::deadline until) override {
        const auto token = find_grant(db, hold, until);
        if (!token) return std::nullopt;
        constexpr std::int64_t never_asked = 0;
        const auto done = link_.semaphores().extend(db, name(), hold.session, hold.grant_id,
                                                    duration, never_asked, until);
        if (done != protocol::extension::done) return std::nullopt;
        // Not before: a renewal that is refused leaves the session as it is.
        const bool lives =
            link_.protocol().sessions().extend(db, hold.session, duration + session_slack, until);
        return lives ? token : std::nullopt;
    }

    std::optional<holder_info> holder(sql::connection& db, rowlock::grant_id grant_id,
                                      sql::deadline until) override {
        const auto holders = link_.semaphores().holders(db, name(), most_holders, until);
        const auto found = std::ranges::find_if(
            holders, [&](const auto& each) { return each.shown.who.grant_id == grant_id; });
        return found == holders.end() ? std::nullopt : std::optional{found->shown.who};
    }

private:
    static protocol::wanted_permits wanted_by(const lock_kind_options& kind) {
        if (kind.shared) return protocol::wanted_for(lock_mode::shared);
        return {.count = kind.weight.value_or(1), .of = counter_kind::semaphore};
    }

    [[nodiscard]] const std::string& name() const noexcept { return options_.name; }

    [[nodiscard]] protocol::grant_request request(const script_hold& hold) const {
        return {.name = name(),
                .session = hold.session,
                .grant_id = hold.grant_id,
                .thread = {},
                .note = options_.note,
                .deadline_us = microseconds{options_.duration}.count(),
                .permits = wanted_};
    }

    const link& link_;
    const acquire_options& options_;
    const protocol::wanted_permits wanted_;
    protocol::permit_holders holders_{};  ///< as found with the place in the queue
    detail::sweep_patience sweeps_{};
};

}  // namespace

void serve_after(sql::connection& db, const link& to, session_id ended_session,
                 sql::deadline until) {
    using protocol::queue_head;
    for (const auto& [name, has_holds] : to.queue().queues_of_session(db, ended_session, until)) {
        if (has_holds) to.semaphores().sweep(db, name, until);
        serve(db, to, name, has_holds ? queue_head::counted : queue_head::sole, until);
    }
    // Waiters poll, entries block none of them, and the reaper deletes them.
    try {
        while (to.queue().delete_entries_of(db, ended_session, until)) {
        }
    } catch (const error&) {
    }
}

std::unique_ptr<script_lock> make_script_lock(const link& to, const acquire_options& options) {
    if (options.kind.is_lease()) return std::make_unique<script_lease>(to, options);
    return std::make_unique<script_permits>(to, options);
}

}  // namespace rowlock::cli
