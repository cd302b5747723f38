#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "sql/statements.hpp"
#include <rowlock/ids.hpp>

/// What the implementations of lease_protocol share. For them alone: others call
/// make_lease_protocol().
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const lease_protocol> make_postgresql_leases(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const lease_protocol> make_mysql_leases(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const lease_protocol> make_sqlite_leases(
    const sql::statement_set& statements);

/// The operations that are the same on every database.
class common_lease_protocol : public lease_protocol {
public:
    [[nodiscard]] std::optional<std::string> server_of(sql::connection& db,
                                                       sql::deadline until) const override;
    bool heartbeat(sql::connection& db, session_id session, std::int64_t revision,
                   sql::deadline until) const override;
    session_state state_of(sql::connection& db, session_id session,
                           sql::deadline until) const override;
    bool end_expired_session(sql::connection& db, session_id session,
                             sql::deadline until) const override;
    void end_session(sql::connection& db, session_id session, sql::deadline until) const override;
    void delete_session(sql::connection& db, session_id session,
                        sql::deadline until) const override;
    bool extend_session(sql::connection& db, session_id session, std::chrono::microseconds ttl,
                        sql::deadline until) const override;
    lease_glance glance(sql::connection& db, std::string_view name,
                        sql::deadline until) const override;
    lease_probe probe(sql::connection& db, std::string_view name, session_id session,
                      sql::deadline until) const override;
    bool release(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
                 sql::deadline until) const override;
    bool retain(sql::connection& db, const grant_to_retain& which,
                sql::deadline until) const override;
    bool end_retention(sql::connection& db, const grant_to_retain& which, const holding_thread& by,
                       sql::deadline until) const override;
    std::optional<std::int64_t> find_grant(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const override;
    void lift_floor(sql::connection& db, std::int64_t token, sql::deadline until) const override;
    void withdraw_retention(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, sql::deadline until) const override;
    void require_token_floor(sql::connection& db, sql::deadline until) const override;
    std::vector<bool> make_durable(sql::connection& db, session_id session,
                                   std::span<const granted_name> grants,
                                   sql::deadline until) const override;
    std::vector<session_lease> leases_of(sql::connection& db, session_id session,
                                         sql::deadline until) const override;
    bool force_release(sql::connection& db, std::string_view name, victim& whom,
                       sql::deadline until) const override;
    bool force_release_of(sql::connection& db, std::string_view name, std::int64_t token,
                          victim& whom, sql::deadline until) const override;
    std::optional<requested_release> request_release(sql::connection& db, std::string_view name,
                                                     std::int64_t token, const release_terms& terms,
                                                     sql::deadline until) const override;
    std::optional<change_to_tell> change_of(sql::connection& db, session_id session,
                                            sql::deadline until) const override;
    std::optional<std::vector<session_id>> reclaim(sql::connection& db, std::string_view owner,
                                                   session_id session,
                                                   const std::function<void(session_id)>& also,
                                                   sql::deadline until) const override;
    std::optional<adopted_lease> adopt(sql::connection& db, const offered_lease& offer,
                                       session_id session, rowlock::grant_id as,
                                       sql::deadline until) const override;
    std::optional<adopted_lease> find_adopted(sql::connection& db, std::string_view name,
                                              session_id session, rowlock::grant_id as,
                                              sql::deadline until) const override;
    std::optional<std::int64_t> renew(sql::connection& db, std::string_view name,
                                      session_id session, rowlock::grant_id grant_id,
                                      std::chrono::microseconds duration,
                                      std::chrono::microseconds slack,
                                      sql::deadline until) const override;
    [[nodiscard]] extension extend(sql::connection& db, const grant_to_extend& which,
                                   std::chrono::microseconds by, std::int64_t revision,
                                   sql::deadline until) const override;
    std::optional<lease_info> inspect(sql::connection& db, std::string_view name,
                                      sql::deadline until) const override;
    std::vector<lease_info> list(sql::connection& db, std::string_view prefix, const page& page,
                                 sql::deadline until) const override;
    std::vector<waiter_info> queue(sql::connection& db, std::string_view name,
                                   sql::deadline until) const override;

protected:
    explicit common_lease_protocol(const sql::statement_set& statements);

    /// Grants the lease by the statement `acquire`.
    [[nodiscard]] attempt acquire_by(const sql::statement& acquire, sql::connection& db,
                                     const grant_request& request, sql::deadline until) const;
    /// The statement that release() runs.
    [[nodiscard]] virtual const sql::statement& release_on(const sql::connection& db) const;
    /// Whether the lease survives a server crash as it was seen. False if it has changed since.
    [[nodiscard]] virtual bool is_durable(sql::connection& db, std::string_view name,
                                          const lease_probe& seen, sql::deadline until) const;

    const sql::statement open_session_, read_floor_;

private:
    [[nodiscard]] std::optional<adopted_lease> read_adopted(sql::connection& db,
                                                            std::string_view name,
                                                            session_id session,
                                                            rowlock::grant_id as,
                                                            sql::deadline until) const;
    bool evict(sql::connection& db, std::string_view name, const lease_probe& seen,
               std::string_view by, sql::deadline until) const;

    const sql::statement heartbeat_, session_state_, end_expired_session_, end_session_,
        delete_session_, bump_revision_, extend_session_, wake_address_, probe_, glance_, release_,
        retain_, end_retention_, find_grant_, confirm_grant_, session_leases_, force_release_,
        lock_lease_, shorten_lease_, lease_deadline_, predecessors_, reclaim_lease_, adopt_lease_,
        adopted_lease_, renew_lease_, extend_lease_, inspect_, list_, queue_, lift_floor_,
        withdraw_retention_;
};

/// The answer to an attempt that granted nothing, by what it saw.
[[nodiscard]] attempt judge(const grant_request& request, const lease_probe& seen);

[[nodiscard]] inline bool changed_one(const sql::result& done) {
    return done.affected() > 0;
}

}  // namespace rowlock::protocol
