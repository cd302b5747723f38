#include "base/ablation.hpp"
#include "lock/protocol/queue/queue_dialects.hpp"
#include "lock/wakeup/mysql_wait.hpp"
#include "sql/run_statement.hpp"
#include "sql/transact_terms.hpp"

namespace rowlock::protocol {
namespace {

/// InnoDB shows a commit before it is on disk, and a server crash may take back what was read: a
/// durable commit of ours follows. A served waiter's sleep in the server is ended behind the commit
/// of its grant.
class mysql_queue_protocol final : public two_step_queue_protocol {
public:
    explicit mysql_queue_protocol(const queue_parts& of)
        : two_step_queue_protocol{of},
          tickets_{of.statements("tickets")},
          delete_ticket_{of.statements("delete_ticket")},
          dead_tickets_{of.statements("dead_tickets")},
          woken_for_{of.statements("woken_for")},
          choose_next_{of.statements("choose_next")},
          give_to_chosen_{of.statements("give_to_chosen")},
          see_chosen_{of.statements("see_chosen")},
          delete_chosen_{of.statements("delete_chosen")} {}

    std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                 sql::deadline until) const override {
        std::vector<grant_id> deleted;
        sql::for_each_list(db, tickets_, alone, grant_ids, until, [&](const sql::result& rows) {
            const auto part = delete_tickets(db, delete_ticket_, rows, until);
            deleted.insert(deleted.end(), part.begin(), part.end());
        });
        return deleted;
    }

    bool delete_entries_of(sql::connection& db, session_id session,
                           sql::deadline until) const override {
        const auto tickets = run(db, dead_tickets_, until, session);
        static_cast<void>(delete_tickets(db, delete_ticket_, tickets, until));
        return !tickets.empty();
    }

    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id, sql::deadline until,
                                      std::optional<std::int64_t> reported) const override {
        const auto granted = read_served(db, name, session, grant_id, until);
        if (!granted || granted->token == reported) return granted;
        const std::array found{granted_name{name, grant_id}};
        if (!leases_.make_durable(db, session, found, until).front()) return std::nullopt;
        return granted;
    }

    std::vector<std::optional<queue_grant>> served(sql::connection& db, session_id session,
                                                   std::span<const granted_name> entries,
                                                   sql::deadline until) const override {
        auto all = two_step_queue_protocol::served(db, session, entries, until);
        std::vector<granted_name> found;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i]) found.push_back(entries[i]);
        }
        if (found.empty()) return all;
        const auto ours = leases_.make_durable(db, session, found, until);
        auto next = ours.begin();
        for (auto& each : all) {
            if (each && !*next++) each.reset();
        }
        return all;
    }

    std::vector<served_row> served_of(sql::connection& db, session_id session,
                                      std::span<const std::string> names,
                                      sql::deadline until) const override {
        const std::array first{sql::value{session}};
        std::vector<served_row> found;
        sql::for_each_list(db, woken_for_, first, names, until, [&](const sql::result& rows) {
            for (std::size_t row = 0; row < rows.rows(); ++row) {
                found.push_back({rows.integer<grant_id>(row, 0),
                                 {rows.integer(row, 1), rows.maybe_integer(row, 2)},
                                 rows.integer(row, 3) != 0});
            }
        });
        return found;
    }

    release_outcome release(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, bool contended, sql::deadline until) const override {
        if (contended) {
            const std::array ours{sql::value{name}, sql::value{session}, sql::value{grant_id},
                                  sql::value{}};
            if (chooses_late()) {
                if (auto done = give_to_first(db, ours, until); done && done->freed) return *done;
            }
            auto done = hand_over(db, name, session, grant_id, until);
            if (!done.freed) done.freed = leases_.release(db, name, session, grant_id, until);
            return done;
        }
        return {leases_.release(db, name, session, grant_id, until), std::nullopt};
    }

    std::optional<confirmed_grant> confirm_and_read_next(sql::connection& db, std::string_view name,
                                                         session_id session, grant_id grant_id,
                                                         bool /*durably*/,
                                                         sql::deadline until) const override {
        // The waiter's session is not checked again before the release: it may die meanwhile.
        constexpr auto reliable = std::chrono::seconds{1};
        const auto seen = look_at(db, name, until);
        if (!seen.is_grant(session, grant_id)) return std::nullopt;
        confirmed_grant settled{{seen.token(), std::nullopt}, std::nullopt};
        if (!seen.waited_for_all() || !seen.may_grant()) return settled;
        auto next = seen.next();
        if (chooses_late() && is_near(next.to)) return settled;
        (settled.next = std::move(next))->alive = reliable;
        return settled;
    }

private:
    /// AUTO_INCREMENT of negative numbers is not defined; it begins at 10^12.
    [[nodiscard]] std::int64_t upgrade_ticket(grant_id grant_id) const override {
        constexpr std::int64_t first_automatic = 1'000'000'000'000;
        return 1 + static_cast<std::int64_t>(grant_id) % (first_automatic - 1);
    }

    /// Whether one text both finds the first waiter and serves it. To a waiter that was seen before
    /// a text also says so in the server, where no datagram does.
    [[nodiscard]] bool chooses_late() const {
        return by_datagram_ && uses(base::fast_path::single_text);
    }

    std::optional<handed_over> grant_first(sql::connection& db, std::string_view name,
                                           const queue_look& seen,
                                           sql::deadline until) const override {
        auto next = seen.next();
        if (chooses_late() && is_near(next.to)) {
            const std::array lease{sql::value{name}, sql::value{}, sql::value{},
                                   sql::value{seen.token()}};
            const auto done = give_to_first(db, lease, until);
            if (done && done->freed) return done->next;
            // Another client was faster, or a connection in between runs no steps that read.
        }
        return grant_to(db, name, next, session_id{}, until);
    }

    /// Hands a lease to the waiter that is the first of its queue when the server comes to it, or
    /// frees it, in one round trip; neither if another client was faster. Returns nullopt if it
    /// cannot be done in one here.
    /// @param lease the parameters of choose_next
    [[nodiscard]] std::optional<release_outcome> give_to_first(
        sql::connection& db, const std::array<sql::value, 4>& lease, sql::deadline until) const {
        const std::span<const sql::value> name{lease.data(), 1};
        const std::array steps{sql::step{choose_next_, lease}, sql::step{give_to_chosen_, name},
                               sql::step{see_chosen_, name}, sql::step{delete_chosen_, alone}};
        // The first reads one row: without a token it fails, before anything waits for a lock.
        constexpr std::array<std::string_view, 4> changes{"if(@chosen_token is null, 2, 1)", "1",
                                                          "", "(@chosen_ticket is not null)"};
        sql::result next;
        const sql::transact_terms terms{changes, next};
        const auto committed = db.transact(steps, {}, until);
        if (!committed) return std::nullopt;
        if (!*committed) return release_outcome{};
        if (next.empty()) return release_outcome{true, std::nullopt};
        return release_outcome{true, handed_over{.session = next.integer<session_id>(0, 1),
                                                 .grant_id = next.integer<grant_id>(0, 2),
                                                 .token = next.integer(0, 0),
                                                 .to = read_address(next, 0, 3)}};
    }

    [[nodiscard]] std::string waking_text(sql::connection& db, const next_waiter& next,
                                          session_id giver) const override {
        if (next.session == giver || (by_datagram_ && is_near(next.to))) return {};
        return mysql_wait::as_text(db, next.session,
                                   mysql_wait::mark_durable(next.grant_id, next.to.secret));
    }

    void wake(sql::connection& db, const handed_over& next, std::string_view /*message*/,
              sql::deadline until) const override {
        mysql_wait::wake(db, next.session, mysql_wait::mark_durable(next.grant_id, next.to.secret),
                         until);
    }

    /// A session that does not wait cannot be reached.
    void notify(sql::connection& /*db*/, const wakeup::wake_address& /*to*/,
                std::string_view /*message*/, sql::deadline /*until*/) const override {}

    const sql::statement tickets_, delete_ticket_, dead_tickets_, woken_for_, choose_next_,
        give_to_chosen_, see_chosen_, delete_chosen_;
};

}  // namespace

std::unique_ptr<const queue_protocol> make_mysql_queue(const queue_parts& of) {
    return std::make_unique<const mysql_queue_protocol>(of);
}

}  // namespace rowlock::protocol
