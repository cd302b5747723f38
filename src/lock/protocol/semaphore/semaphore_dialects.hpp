#pragma once

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/statements.hpp"

/// What the implementations of semaphore_protocol share. For them alone: others call
/// make_semaphore_protocol().
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_postgresql_semaphores(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_mysql_semaphores(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_sqlite_semaphores(
    const sql::statement_set& statements);

/// The operations that are the same on every database.
class common_semaphore_protocol : public semaphore_protocol {
public:
    attempt acquire(sql::connection& db, const grant_request& request,
                    sql::deadline until) const override;
    std::optional<std::int64_t> find_grant(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const override;
    release_outcome release(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, release_hint hint,
                            sql::deadline until) const override;
    [[nodiscard]] std::vector<std::optional<attempt>> acquire_together(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const override;
    void set_capacity(sql::connection& db, std::string_view name, std::int64_t capacity,
                      sql::deadline until) const override;
    bool create(sql::connection& db, std::string_view name, std::int64_t capacity,
                sql::deadline until) const override;
    bool shrink(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
                std::int64_t to, sql::deadline until) const override;
    bool lower(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
               std::int64_t to, sql::deadline until) const override;
    std::int64_t sweep(sql::connection& db, std::string_view name,
                       sql::deadline until) const override;
    [[nodiscard]] permit_holders holders_of(sql::connection& db, std::string_view name,
                                            sql::deadline until) const override;
    [[nodiscard]] std::vector<session_id> expired_holders(sql::connection& db,
                                                          std::string_view name,
                                                          sql::deadline until) const override;
    [[nodiscard]] std::vector<session_lease> permits_of(sql::connection& db, session_id session,
                                                        sql::deadline until) const override;
    void reclaim(sql::connection& db, session_id predecessor, session_id session,
                 sql::deadline until) const override;
    [[nodiscard]] std::vector<neglected_semaphore> neglected(sql::connection& db,
                                                             std::string_view after,
                                                             std::int64_t limit,
                                                             sql::deadline until) const override;
    bool correct(sql::connection& db, std::string_view name, sql::deadline until) const override;
    [[nodiscard]] extension extend(sql::connection& db, std::string_view name, session_id session,
                                   grant_id grant_id, std::chrono::microseconds by,
                                   std::int64_t revision, sql::deadline until) const override;
    [[nodiscard]] std::optional<requested_release> request_release(
        sql::connection& db, std::string_view name, std::int64_t token, const release_terms& terms,
        sql::deadline until) const override;
    bool force_release(sql::connection& db, std::string_view name, std::int64_t token,
                       std::string_view by, std::optional<hold_id>& whom,
                       sql::deadline until) const override;
    [[nodiscard]] bool exists(sql::connection& db, std::string_view name, counter_kind kind,
                              sql::deadline until) const override;
    [[nodiscard]] std::optional<semaphore_info> inspect(sql::connection& db, std::string_view name,
                                                        counter_kind kind,
                                                        sql::deadline until) const override;
    [[nodiscard]] std::vector<semaphore_info> list(sql::connection& db, std::string_view prefix,
                                                   counter_kind kind, const page& page,
                                                   sql::deadline until) const override;
    [[nodiscard]] std::vector<held_permits> holders(sql::connection& db, std::string_view name,
                                                    int limit, sql::deadline until) const override;
    [[nodiscard]] std::vector<permit_waiter> queue(sql::connection& db, std::string_view name,
                                                   sql::deadline until) const override;

protected:
    explicit common_semaphore_protocol(const sql::statement_set& statements);

    /// The token, or nullopt if nothing was taken. Durable when it returns.
    virtual std::optional<std::int64_t> take(sql::connection& db, const grant_request& request,
                                             sql::deadline until) const = 0;
    /// take() for several requests, by one commit: a token for each, from the first on, that fits;
    /// 0 for one that is over already.
    [[nodiscard]] virtual std::vector<std::int64_t> take_together(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const = 0;
    /// Returns false if this hold is over already, or the grant is no hold.
    /// @param permits what it has most likely; 0: unknown
    virtual bool give(sql::connection& db, std::string_view name, session_id session,
                      grant_id grant_id, std::int64_t permits, sql::deadline until) const = 0;
    struct found_hold {
        queue_grant granted;
        std::int64_t permits;
        [[nodiscard]] bool is_upgrade() const noexcept { return permits == 0; }
    };
    /// Returns false, and changes nothing, if this hold is not as it was read.
    virtual bool shrink_now(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, const found_hold& read, std::int64_t to,
                            sql::deadline until) const = 0;
    /// Returns false, and changes nothing, if the session does not have all of the lock by this
    /// grant.
    virtual bool lower_now(sql::connection& db, std::string_view name, session_id session,
                           grant_id grant_id, std::int64_t to, sql::deadline until) const = 0;
    /// Ends a batch of holds that are over. Returns how many permits they had; 0: there are none.
    virtual std::int64_t sweep_some(sql::connection& db, std::string_view name,
                                    sql::deadline until) const = 0;

    /// For a loop that other clients can keep going.
    /// @throws error errc::timed_out behind the deadline
    static void check_time(sql::deadline until);

    /// A lock, and the session that asks.
    struct state {
        bool present = false;                    ///< it has a row
        std::optional<std::int64_t> capacity{};  ///< of a semaphore
        std::int64_t used = 0;
        bool session_live = false;
        bool waited = false;
        bool sole = false;  ///< the row names a sole holder, alive or not
        session_id holder{};
        rowlock::grant_id holders_grant{};
        bool retained = false;  ///< its client may have no thread that holds it
        /// What an attempt that found no room reports.
        [[nodiscard]] lease_probe seen() const {
            return {.session_live = session_live,
                    .grant_id = holders_grant,
                    .session = holder,
                    .waited = waited,
                    .retained = retained};
        }
        /// Whether one counted hold has all of the lock.
        [[nodiscard]] bool is_upgraded() const {
            return !sole && holders_grant != rowlock::grant_id{};
        }
        [[nodiscard]] counter_kind kind() const {
            return capacity ? counter_kind::semaphore : counter_kind::shared_mutex;
        }
        [[nodiscard]] bool has(std::int64_t permits) const {
            const auto all = capacity.value_or(permits_for(lock_mode::exclusive));
            return present && !sole && !is_upgraded() && permits <= all - used;
        }
    };
    [[nodiscard]] state state_of(sql::connection& db, std::string_view name, session_id session,
                                 sql::deadline until) const;
    /// As read: it may not be durable.
    [[nodiscard]] std::optional<found_hold> read(sql::connection& db, std::string_view name,
                                                 session_id session, grant_id grant_id,
                                                 sql::deadline until) const;

private:
    [[nodiscard]] attempt upgrade(sql::connection& db, const grant_request& request,
                                  sql::deadline until) const;
    [[nodiscard]] attempt judge(sql::connection& db, const grant_request& request,
                                sql::deadline until) const;
    [[nodiscard]] std::optional<hold_id> hold_to_end(sql::connection& db, std::string_view name,
                                                     std::int64_t token, sql::deadline until) const;

    const sql::statement set_capacity_, create_, make_row_, state_, find_, holders_, expired_,
        permits_of_, neglected_, lock_, correct_, exists_, inspect_, list_, holders_for_people_,
        queue_, to_end_, lock_hold_, shorten_, end_, bump_revision_, extend_, session_,
        raise_token_, reclaim_, upgrade_look_, upgrade_lock_, drop_upgrade_;
};

}  // namespace rowlock::protocol
