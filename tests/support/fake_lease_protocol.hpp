#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "support/fake_tables.hpp"

#include <algorithm>
#include <vector>

namespace support {

namespace fake {

using namespace rowlock;
using namespace rowlock::protocol;
using namespace rowlock::wakeup;

/// Sessions and leases in memory, for tests of their callers. There is no clock: a session lives
/// until it is ended, and `remaining` is one second of every holder. Every grant is durable.
class fake_lease_protocol final : public lease_protocol {
public:
    explicit fake_lease_protocol(fake_tables& in) : in_{in} {}

    void set_up(sql::connection& /*db*/, std::chrono::milliseconds /*statement_timeout*/,
                sql::deadline /*until*/) const override {}

    [[nodiscard]] std::optional<std::string> server_of(sql::connection& /*db*/,
                                                       sql::deadline /*until*/) const override {
        return in_.call([](rows& /*all*/) { return std::optional<std::string>{""}; });
    }
    [[nodiscard]] std::optional<std::string> server_of_again(sql::connection& db,
                                                             sql::deadline until) const override {
        return server_of(db, until);
    }

    std::string open_session(sql::connection& /*db*/, const session_row& row,
                             sql::deadline /*until*/) const override {
        in_.call([&](rows& all) { all.sessions[row.id] = {.owner = row.owner, .wake = row.wake}; });
        return "";
    }

    bool heartbeat(sql::connection& /*db*/, session_id session, std::int64_t revision,
                   sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            return all.live(session) && all.sessions[session].revision == revision;
        });
    }

    session_state state_of(sql::connection& /*db*/, session_id session,
                           sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> session_state {
            const auto found = all.sessions.find(session);
            if (found == all.sessions.end()) return {false, 0};
            return {found->second.live, found->second.revision};
        });
    }

    /// No session expires.
    bool end_expired_session(sql::connection& /*db*/, session_id /*session*/,
                             sql::deadline /*until*/) const override {
        return in_.call([](rows& /*all*/) { return false; });
    }
    void end_session(sql::connection& /*db*/, session_id session,
                     sql::deadline /*until*/) const override {
        in_.call([&](rows& all) {
            if (all.live(session)) all.sessions[session].live = false;
        });
    }
    void delete_session(sql::connection& /*db*/, session_id session,
                        sql::deadline /*until*/) const override {
        in_.call([&](rows& all) { all.sessions.erase(session); });
    }
    bool extend_session(sql::connection& /*db*/, session_id session,
                        std::chrono::microseconds /*ttl*/, sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) { return all.live(session); });
    }

    attempt acquire(sql::connection& /*db*/, const grant_request& request,
                    sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> attempt {
            const lease_probe seen = look_at(all, request.name, request.session);
            if (!seen.session_live) return {attempt::outcome::session_dead, 0, seen};
            if (!seen.takeable(request.barging)) return {attempt::outcome::held, 0, seen};
            const auto token = all.grant({std::string{request.name}, request.session,
                                          request.grant_id, std::string{request.thread},
                                          std::string{request.note}, request.deadline_us});
            return {attempt::outcome::granted, token, {}};
        });
    }

    lease_probe probe(sql::connection& /*db*/, std::string_view name, session_id session,
                      sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) { return look_at(all, name, session); });
    }

    lease_glance glance(sql::connection& /*db*/, std::string_view name,
                        sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> lease_glance {
            const auto seen = look_at(all, name, session_id{});
            return {seen.free, seen.grant_id, seen.session, seen.retained, seen.remaining};
        });
    }

    bool release(sql::connection& /*db*/, std::string_view name, session_id session,
                 grant_id grant_id, sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            if (!all.is_grant(name, session, grant_id)) return false;
            all.leases.find(name)->second.session = session_id{0};
            return true;
        });
    }

    bool retain(sql::connection& /*db*/, const protocol::grant_to_retain& /*which*/,
                sql::deadline /*until*/) const override {
        return false;
    }
    bool end_retention(sql::connection& /*db*/, const protocol::grant_to_retain& /*which*/,
                       const protocol::holding_thread& /*by*/,
                       sql::deadline /*until*/) const override {
        return false;
    }
    std::optional<std::int64_t> find_grant(sql::connection& /*db*/, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<std::int64_t> {
            if (!all.is_grant(name, session, grant_id)) return std::nullopt;
            return all.leases.find(name)->second.token;
        });
    }

    void lift_floor(sql::connection& /*db*/, std::int64_t token,
                    sql::deadline /*until*/) const override {
        in_.call([&](rows& all) { all.floor = std::max(all.floor, token); });
    }
    void withdraw_retention(sql::connection& /*db*/, std::string_view /*name*/,
                            session_id /*session*/, grant_id /*grant_id*/,
                            sql::deadline /*until*/) const override {}
    void require_token_floor(sql::connection& /*db*/, sql::deadline /*until*/) const override {
        in_.call([](rows& /*all*/) {});
    }

    std::vector<bool> make_durable(sql::connection& /*db*/, session_id session,
                                   std::span<const granted_name> grants,
                                   sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<bool> ours;
            for (const auto& each : grants) {
                ours.push_back(all.is_grant(each.name, session, each.grant_id));
            }
            return ours;
        });
    }

    std::vector<session_lease> leases_of(sql::connection& /*db*/, session_id session,
                                         sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<session_lease> held;
            for (const auto& [name, row] : all.leases) {
                if (row.session == session) {
                    held.push_back({name, row.grant_id, row.token, row.deadline_us});
                }
            }
            return held;
        });
    }

    bool force_release(sql::connection& /*db*/, std::string_view name, victim& whom,
                       sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            const lease_probe seen = look_at(all, name, session_id{0});
            if (whom.token && seen.token != *whom.token) return true;
            if (seen.free) return false;
            whom = {.token = seen.token, .session = seen.session};
            evict(all, name);
            return true;
        });
    }

    bool force_release_of(sql::connection& /*db*/, std::string_view name, std::int64_t token,
                          victim& whom, sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            const lease_probe seen = look_at(all, name, session_id{0});
            if (seen.token != token) return whom.token.has_value();
            if (seen.free) return false;
            whom.session = seen.session;
            evict(all, name);
            return true;
        });
    }

    std::optional<requested_release> request_release(sql::connection& /*db*/, std::string_view name,
                                                     std::int64_t token,
                                                     const release_terms& /*terms*/,
                                                     sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<requested_release> {
            const lease_probe seen = look_at(all, name, session_id{0});
            if (seen.free || seen.token != token) return std::nullopt;
            ++all.sessions[seen.session].revision;
            return requested_release{.session = seen.session, .left = seen.remaining};
        });
    }

    std::optional<change_to_tell> change_of(sql::connection& /*db*/, session_id session,
                                            sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<change_to_tell> {
            const auto found = all.sessions.find(session);
            if (found == all.sessions.end() || found->second.wake.secret.empty()) return {};
            return change_to_tell{found->second.wake, found->second.revision};
        });
    }

    std::optional<std::vector<session_id>> reclaim(sql::connection& /*db*/, std::string_view owner,
                                                   session_id session,
                                                   const std::function<void(session_id)>& also,
                                                   sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<std::vector<session_id>> {
            if (!all.live(session)) return std::nullopt;
            std::vector<session_id> ended;
            for (auto& [id, each] : all.sessions) {
                if (id == session || !each.live || each.owner != owner) continue;
                each.live = false;
                ended.push_back(id);
                if (also) also(id);
                for (auto& [name, row] : all.leases) {
                    if (row.session != id) continue;
                    row.session = session;
                    row.token += 2;  // like the statement, which skips a token
                }
            }
            return ended;
        });
    }

    std::optional<adopted_lease> adopt(sql::connection& /*db*/, const offered_lease& offer,
                                       session_id session, rowlock::grant_id as,
                                       sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<adopted_lease> {
            if (!all.is_grant(offer.name, offer.session, offer.grant_id)) return std::nullopt;
            auto& row = all.leases.find(offer.name)->second;
            if (row.token != offer.token || !all.live(offer.session) || !all.live(session)) {
                return std::nullopt;
            }
            row.session = session;
            row.grant_id = as;
            row.token += 2;  // like the statement, which skips a token
            ++all.sessions[offer.session].revision;
            return adopted_lease{.token = row.token};
        });
    }

    std::optional<adopted_lease> find_adopted(sql::connection& /*db*/, std::string_view name,
                                              session_id session, rowlock::grant_id as,
                                              sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<adopted_lease> {
            if (!all.is_grant(name, session, as)) return std::nullopt;
            return adopted_lease{.token = all.leases.find(name)->second.token};
        });
    }

    extension extend(sql::connection& /*db*/, const grant_to_extend& which,
                     std::chrono::microseconds by, std::int64_t /*revision*/,
                     sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            if (!all.is_grant(which.name, which.session, which.grant_id)) return extension::over;
            auto& row = all.leases.find(which.name)->second;
            if (row.token == which.new_token) return extension::done_before;
            row.deadline_us = by.count();
            row.token = which.new_token;
            return extension::done;
        });
    }
    std::optional<std::int64_t> renew(sql::connection& /*db*/, std::string_view name,
                                      session_id session, rowlock::grant_id grant_id,
                                      std::chrono::microseconds duration,
                                      std::chrono::microseconds /*slack*/,
                                      sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<std::int64_t> {
            if (!all.is_grant(name, session, grant_id)) return std::nullopt;
            auto& row = all.leases.find(name)->second;
            row.deadline_us = duration.count();
            return row.token += 2;
        });
    }

    std::optional<lease_info> inspect(sql::connection& /*db*/, std::string_view name,
                                      sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) -> std::optional<lease_info> {
            if (!all.leases.contains(name) && !all.waited(name)) return std::nullopt;
            return info_of(all, name);
        });
    }

    std::vector<lease_info> list(sql::connection& /*db*/, std::string_view prefix, const page& page,
                                 sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<lease_info> found;
            for (const auto& [name, row] : all.leases) {
                if (!name.starts_with(prefix) || name <= page.after) continue;
                if (std::cmp_less(found.size(), page.limit)) found.push_back(info_of(all, name));
            }
            return found;
        });
    }

    std::vector<waiter_info> queue(sql::connection& /*db*/, std::string_view name,
                                   sql::deadline /*until*/) const override {
        return in_.call([&](rows& all) {
            std::vector<waiter_info> found;
            for (const auto& [ticket, each] : all.waiters) {
                if (each.name != name || !all.live(each.session)) continue;
                waiter_info& one = found.emplace_back();
                one.name = each.name;
                one.position = static_cast<std::int64_t>(found.size());
                one.ticket = ticket;
                one.session = each.session;
                one.owner = all.sessions[each.session].owner;
                one.thread = each.thread;
                one.note = each.note;
            }
            return found;
        });
    }

private:
    using rows = fake_tables::rows;

    static lease_probe look_at(const rows& all, std::string_view name, session_id session) {
        lease_probe seen;
        seen.session_live = all.live(session);
        const auto row = all.leases.find(name);
        seen.present = row != all.leases.end();
        seen.free = all.free(name);
        seen.waited = seen.free && all.waited(name);
        if (!seen.present) return seen;
        seen.token = row->second.token;
        seen.grant_id = row->second.grant_id;
        seen.session = row->second.session;
        if (!seen.free) seen.remaining = std::chrono::seconds{1};
        return seen;
    }

    static void evict(rows& all, std::string_view name) {
        auto& row = all.leases.find(name)->second;
        ++all.sessions[row.session].revision;
        row.session = session_id{0};
    }

    static lease_info info_of(rows& all, std::string_view name) {
        lease_info info;
        info.name = name;
        const lease_probe seen = look_at(all, name, session_id{0});
        info.token = fencing_token{seen.token};
        if (seen.free) return info;
        holder_info& holder = info.holder.emplace();
        holder.session = seen.session;
        holder.grant_id = seen.grant_id;
        holder.owner = all.sessions[seen.session].owner;
        return info;
    }

    fake_tables& in_;
};

}  // namespace fake

using fake::fake_lease_protocol;

}  // namespace support
