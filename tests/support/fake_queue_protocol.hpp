#pragma once

#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/fake_tables.hpp"

#include <algorithm>
#include <set>

namespace support {

namespace fake {

using namespace rowlock;
using namespace rowlock::protocol;
using namespace rowlock::wakeup;

/// The queue in memory, for tests of its callers. Serves in ticket order, and only waiters whose
/// session lives. Knows no deadlocks and reserves no tokens; wake-ups are recorded, not sent.
class fake_queue_protocol final : public queue_protocol {
public:
    explicit fake_queue_protocol(fake_tables& in) : in_{in} {}

    /// The sessions that notify_grantee and notify_session have notified, in that order.
    [[nodiscard]] std::vector<session_id> notified() const {
        return in_.look([&](rows& /*all*/) { return notified_; });
    }

    std::optional<lease_glance> enqueue(sql::connection& /*db*/, const grant_request& request,
                                        sql::deadline /*until*/) const override {
        in_.call([&](rows& all) {
            for (const auto& [ticket, each] : all.waiters) {
                if (each.grant_id == request.grant_id) return;  // a repetition
            }
            all.waiters.emplace(
                ticket_no{++all.last_ticket},
                fake_tables::waiter{std::string{request.name}, request.session, request.grant_id,
                                    std::string{request.thread}, std::string{request.note},
                                    request.deadline_us});
        });
        return std::nullopt;
    }

    std::vector<grant_id> cancel(sql::connection& /*db*/, std::span<const grant_id> grant_ids,
                                 sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<grant_id> gone;
            for (const auto id : grant_ids) {
                const auto deleted = std::erase_if(
                    all.waiters, [&](const auto& each) { return each.second.grant_id == id; });
                if (deleted > 0) gone.push_back(id);
            }
            return gone;
        });
    }

    queue_entries entries_of(sql::connection& /*db*/, session_id session,
                             sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            queue_entries found{all.live(session), {}};
            for (const auto& [ticket, each] : all.waiters) {
                if (each.session == session) found.waiting.push_back(entry_at(all, ticket));
            }
            return found;
        });
    }

    queue_entries entries_at(sql::connection& db, session_id session,
                             std::span<const grant_id> /*grant_ids*/,
                             sql::deadline until) const override {
        return entries_of(db, session, until);
    }

    void reset_watermark(sql::connection& /*db*/, std::string_view /*name*/, ticket_no /*ticket*/,
                         sql::deadline /*until*/) const override {
        in_.call([](rows& /*all*/) {});
    }

    std::optional<queue_grant> served(sql::connection& /*db*/, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline /*until*/,
                                      std::optional<std::int64_t> /*told*/) const override {
        return in_.call([&](rows& all) { return grant_of(all, name, session, grant_id); });
    }

    std::vector<std::optional<queue_grant>> served(sql::connection& /*db*/, session_id session,
                                                   std::span<const granted_name> entries,
                                                   sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<std::optional<queue_grant>> found;
            for (const auto& each : entries) {
                found.push_back(grant_of(all, each.name, session, each.grant_id));
            }
            return found;
        });
    }

    std::optional<queue_grant> read_served(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const override {
        return served(db, name, session, grant_id, until, std::nullopt);
    }

    std::vector<served_row> served_of(sql::connection& db, session_id session,
                                      std::span<const std::string> names,
                                      sql::deadline until) const override {
        return held_of(db, session, names, until);
    }

    std::vector<served_row> held_of(sql::connection& /*db*/, session_id session,
                                    std::span<const std::string> names,
                                    sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<served_row> found;
            for (const auto& name : names) {
                const auto row = all.leases.find(name);
                if (row == all.leases.end() || row->second.session != session) continue;
                found.push_back({row->second.grant_id,
                                 {row->second.token, row->second.deadline_us},
                                 /*durable=*/true});
            }
            return found;
        });
    }

    [[nodiscard]] served_waiters serve(sql::connection& /*db*/, std::string_view name,
                                       queue_head /*expected*/,
                                       sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            served_waiters done;
            if (auto next = serve(all, name)) done.waiters.push_back(*std::move(next));
            return done;
        });
    }

    void clear_sole(sql::connection& /*db*/, std::string_view /*name*/, std::int64_t /*token*/,
                    session_id /*session*/, sql::deadline /*until*/) const override {}

    release_outcome release(sql::connection& /*db*/, std::string_view name, session_id session,
                            grant_id grant_id, bool /*contended*/,
                            sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> release_outcome {
            if (!all.is_grant(name, session, grant_id)) return {};
            all.leases.find(name)->second.session = session_id{0};
            return {.freed = true, .next = serve(all, name)};
        });
    }

    /// Sees no next waiter: release() finds it.
    std::optional<confirmed_grant> confirm_and_read_next(sql::connection& db, std::string_view name,
                                                         session_id session, grant_id grant_id,
                                                         bool /*durably*/,
                                                         sql::deadline until) const override {
        const auto granted = read_served(db, name, session, grant_id, until);
        if (!granted) return std::nullopt;
        return confirmed_grant{*granted, std::nullopt};
    }

    std::optional<handed_over> hand_over_to(sql::connection& /*db*/, std::string_view name,
                                            session_id session, grant_id grant_id,
                                            const next_waiter& next,
                                            const hand_over_options& /*how*/,
                                            sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<handed_over> {
            const auto waiter = all.waiters.find(next.ticket);
            if (waiter == all.waiters.end() || !all.is_grant(name, session, grant_id)) return {};
            return give(all, waiter);
        });
    }

    std::vector<std::string> names_with_waiters(sql::connection& /*db*/,
                                                std::span<const std::string> names,
                                                sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::set<std::string> found;
            for (const auto& name : names) {
                if (all.waited(name)) found.insert(name);
            }
            return std::vector<std::string>{found.begin(), found.end()};
        });
    }

    std::vector<std::string> leave(sql::connection& db, session_id session,
                                   std::span<const std::string> names,
                                   sql::deadline until) const override {
        in_.call([&](rows& all) { all.sessions.erase(session); });
        return names_with_waiters(db, names, until);
    }

    [[nodiscard]] std::vector<queue_of_session> queues_of_session(
        sql::connection& /*db*/, session_id session, sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::set<std::string> found;
            for (const auto& [name, row] : all.leases) {
                if (row.session == session && all.waited(name)) found.insert(name);
            }
            for (const auto& [ticket, each] : all.waiters) {
                if (each.session == session && all.waited(each.name)) found.insert(each.name);
            }
            std::vector<queue_of_session> queues;
            for (const auto& name : found) queues.push_back({name, /*has_holds=*/false});
            return queues;
        });
    }

    bool delete_entries_of(sql::connection& /*db*/, session_id session,
                           sql::deadline /*until*/) const override {
        in_.call([&](rows& all) {
            if (all.live(session)) return;
            std::erase_if(all.waiters,
                          [&](const auto& each) { return each.second.session == session; });
        });
        return false;
    }

    std::vector<deadlock_found> deadlocks(sql::connection& /*db*/, session_id /*session*/,
                                          sql::deadline /*until*/) const override {
        return in_.call([](rows& /*all*/) { return std::vector<deadlock_found>{}; });
    }

    void notify_grantee(sql::connection& /*db*/, const handed_over& next,
                        sql::deadline /*until*/) const noexcept override {
        record(next.session);
    }
    void recall(sql::connection& /*db*/, session_id session, grant_id /*grant_id*/,
                sql::deadline /*until*/) const noexcept override {
        record(session);
    }
    void notify_session(sql::connection& /*db*/, session_id session,
                        sql::deadline /*until*/) const noexcept override {
        record(session);
    }

private:
    using rows = fake_tables::rows;
    using waiter_at = std::map<ticket_no, fake_tables::waiter>::const_iterator;

    static std::optional<queue_grant> grant_of(const rows& all, std::string_view name,
                                               session_id session, grant_id grant_id) {
        if (!all.is_grant(name, session, grant_id)) return std::nullopt;
        const auto& row = all.leases.find(name)->second;
        return queue_grant{row.token, row.deadline_us};
    }

    static std::optional<handed_over> serve(rows& all, std::string_view name) {
        const auto next = all.first(name);
        if (!all.free(name) || next == all.waiters.end()) return std::nullopt;
        return give(all, next);
    }

    static handed_over give(rows& all, waiter_at to) {
        handed_over given{.session = to->second.session,
                          .grant_id = to->second.grant_id,
                          .token = all.grant(to->second),
                          .to = all.sessions[to->second.session].wake};
        all.waiters.erase(to);
        return given;
    }

    static queue_entry entry_at(const rows& all, ticket_no ticket) {
        const auto& mine = all.waiters.at(ticket);
        const auto lease = all.leases.find(mine.name);
        const bool free = all.free(mine.name);
        std::int64_t position = all.live(mine.session) ? 1 : 0;
        for (const auto& [other, each] : all.waiters) {
            if (position > 0 && other < ticket && each.name == mine.name &&
                all.live(each.session)) {
                ++position;
            }
        }
        return {.name = mine.name,
                .grant_id = mine.grant_id,
                .ticket = ticket,
                .position = position,
                .servable = free,
                .holder_session = lease == all.leases.end() ? session_id{} : lease->second.session,
                .holder_expired = false,
                .remaining = std::chrono::microseconds{free ? 0 : 1'000'000},
                .behind_watermark = false};
    }

    void record(session_id session) const noexcept {
        try {
            in_.call([&](rows& /*all*/) { notified_.push_back(session); });
        } catch (...) {
            // As if the wake-up were lost.
        }
    }

    fake_tables& in_;
    mutable std::vector<session_id> notified_;  ///< under the lock of in_
};

}  // namespace fake

using fake::fake_queue_protocol;

}  // namespace support
