#include "coordination/protocol/hold/tickets.hpp"
#include "coordination/protocol/semaphore/semaphore_two_step.hpp"
#include "sql/run_statement.hpp"
#include "sql/value_list.hpp"

namespace rowlock::protocol {
namespace {

/// InnoDB shows a commit before it is on disk: a durable commit of ours follows what is read of a
/// grant. Tickets are deleted by primary key.
class mysql_semaphore_protocol final : public two_step_semaphore_protocol {
public:
    explicit mysql_semaphore_protocol(const sql::statement_set& statements)
        : two_step_semaphore_protocol{statements},
          confirm_{statements("confirm_permit")},
          tickets_{statements("permit_tickets")},
          dead_tickets_of_{statements("dead_permit_tickets_of")},
          dead_tickets_{statements("dead_permit_tickets")},
          delete_waiter_{statements("delete_permit_waiter")},
          lock_now_{statements("lock_permit_now")},
          mark_expired_{statements("mark_expired")} {}

    std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                 sql::deadline until) const override {
        std::vector<grant_id> deleted;
        sql::for_each_list(db, tickets_, std::array<sql::value, 0>{}, grant_ids, until,
                           [&](const sql::result& rows) {
                               const auto part = delete_tickets(db, delete_waiter_, rows, until);
                               deleted.insert(deleted.end(), part.begin(), part.end());
                           });
        return deleted;
    }

    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        const auto found = read(db, name, session, grant_id, until);
        if (!found || sql::run(db, confirm_, until, name, session, grant_id).affected() == 0) {
            return std::nullopt;
        }
        return found->granted;
    }

    bool delete_entries_of(sql::connection& db, session_id session,
                           sql::deadline until) const override {
        const auto tickets = sql::run(db, dead_tickets_of_, until, session);
        static_cast<void>(delete_tickets(db, delete_waiter_, tickets, until));
        return !tickets.empty();
    }

    std::int64_t remove_dead_entries(sql::connection& db, std::int64_t batch,
                                     sql::deadline until) const override {
        const auto tickets = sql::run(db, dead_tickets_, until, batch);
        return static_cast<std::int64_t>(delete_tickets(db, delete_waiter_, tickets, until).size());
    }

private:
    /// AUTO_INCREMENT of negative numbers is not defined; it begins at 10^12.
    [[nodiscard]] std::int64_t upgrade_ticket(grant_id grant_id) const override {
        constexpr std::int64_t first_automatic = 1'000'000'000'000;
        return 1 + static_cast<std::int64_t>(grant_id) % (first_automatic - 1);
    }

    bool lock_hold(sql::connection& db, std::string_view name, grant_id grant_id,
                   session_id session, sql::deadline until) const override {
        if (sql::run(db, lock_now_, until, name, grant_id, session).empty()) return false;
        sql::run(db, mark_expired_, until, name, grant_id, session);
        return true;
    }

    const sql::statement confirm_, tickets_, dead_tickets_of_, dead_tickets_, delete_waiter_,
        lock_now_, mark_expired_;
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_mysql_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const mysql_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
