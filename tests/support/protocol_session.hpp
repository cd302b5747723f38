#pragma once

#include "lock/protocol/batch/batch_protocol.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/lock_database.hpp"
#include "support/protocols.hpp"
#include "support/serving.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The lock protocol without a client: each call is one transition, with no heartbeat, no retry and
/// no batching behind it. The test chooses the ids of sessions and grants.
namespace support {

struct session_options {
    std::string owner{"owner"};
    /// By default the session outlives the test, although it has no heartbeat.
    std::chrono::microseconds ttl = std::chrono::hours{1};
    rowlock::wakeup::wake_address wake{};
};

struct request_options {
    std::string_view thread{};
    std::string_view note{};
    std::optional<std::int64_t> deadline_us{};
    bool barging = false;
};

/// The protocol on one connection, for any number of sessions.
class protocol_connection {
public:
    using ids = std::vector<rowlock::grant_id>;
    using names = std::vector<std::string>;
    using tokens = std::vector<std::optional<std::int64_t>>;

    explicit protocol_connection(const lock_database& database);
    /// On a connection of `source`, to its tables.
    explicit protocol_connection(const rowlock::sql::connection_source& source);
    protocol_connection(const protocol_connection&) = delete;
    protocol_connection& operator=(const protocol_connection&) = delete;

    void open(rowlock::session_id session, const session_options& options = {}) const;
    void end(rowlock::session_id session) const;
    [[nodiscard]] bool heartbeat(rowlock::session_id session, std::int64_t revision = 0) const;
    [[nodiscard]] bool is_live(rowlock::session_id session) const;

    [[nodiscard]] rowlock::protocol::attempt acquire(std::string_view name,
                                                     rowlock::session_id session,
                                                     rowlock::grant_id grant_id,
                                                     const request_options& options = {}) const;
    /// The token; nullopt if the lease was not granted.
    [[nodiscard]] std::optional<std::int64_t> try_acquire(
        std::string_view name, rowlock::session_id session, rowlock::grant_id grant_id,
        const request_options& options = {}) const;
    /// Grants the lease and frees it again; returns the token that its row keeps.
    std::int64_t acquire_and_free(std::string_view name, rowlock::session_id session) const;
    /// Frees the lease, and leaves it free if there are waiters. False: it was not this grant.
    [[nodiscard]] bool free(std::string_view name, rowlock::session_id session,
                            rowlock::grant_id grant_id) const;
    [[nodiscard]] bool force_release(std::string_view name) const;

    void enqueue(std::string_view name, rowlock::session_id session, rowlock::grant_id grant_id,
                 const request_options& options = {}) const;
    /// The queue entries that this call deleted, sorted.
    [[nodiscard]] ids cancel(const ids& grant_ids) const;
    [[nodiscard]] rowlock::protocol::queue_entries entries_of(rowlock::session_id session) const;
    [[nodiscard]] std::optional<rowlock::protocol::handed_over> grant_next(
        std::string_view name, rowlock::sql::deadline until = soon()) const;
    /// Frees the lease or hands it to its first waiter (queue_protocol::release).
    [[nodiscard]] rowlock::protocol::release_outcome release(std::string_view name,
                                                             rowlock::session_id session,
                                                             rowlock::grant_id grant_id,
                                                             bool contended = true) const;
    [[nodiscard]] std::optional<rowlock::protocol::queue_grant> served(
        std::string_view name, rowlock::session_id session, rowlock::grant_id grant_id) const;
    [[nodiscard]] std::optional<rowlock::protocol::confirmed_grant> confirm_and_read_next(
        std::string_view name, rowlock::session_id session, rowlock::grant_id grant_id,
        bool durably = true) const;
    [[nodiscard]] std::optional<rowlock::protocol::handed_over> hand_over_to(
        std::string_view name, rowlock::session_id session, rowlock::grant_id grant_id,
        const rowlock::protocol::next_waiter& next, bool may_be_asynchronous = true) const;
    [[nodiscard]] names names_with_waiters(const names& asked) const;
    [[nodiscard]] names leave(rowlock::session_id session, const names& asked) const;
    /// Sorted.
    [[nodiscard]] names queues_of_session(rowlock::session_id session) const;
    void delete_entries_of(rowlock::session_id session) const;
    [[nodiscard]] std::vector<rowlock::protocol::deadlock_found> deadlocks(
        rowlock::session_id session) const;

    [[nodiscard]] bool reacquire(const rowlock::protocol::grant_request& request,
                                 std::int64_t known) const;
    [[nodiscard]] tokens acquire_all(
        std::span<const rowlock::protocol::grant_request> requests) const;
    [[nodiscard]] std::vector<bool> release_all(
        rowlock::session_id session, std::span<const rowlock::protocol::granted_name> grants) const;

    /// SQL as it stands: the caller writes the prefix of the tables.
    void run(const std::string& text) const;
    [[nodiscard]] std::int64_t changed_by(const std::string& text) const;
    /// The first value, 0 if it is null.
    [[nodiscard]] std::int64_t number(const std::string& text) const;

    [[nodiscard]] rowlock::sql::connection& db() const { return *db_; }
    [[nodiscard]] const rowlock::protocol::lease_protocol& leases() const { return leases_; }
    [[nodiscard]] const rowlock::protocol::queue_protocol& queue() const { return queue_; }
    [[nodiscard]] const rowlock::protocol::batch_protocol& batch() const { return batch_; }

    [[nodiscard]] const rowlock::sql::statement_set& statements() const {
        return protocols_.statements();
    }

private:
    const protocols protocols_;
    const rowlock::protocol::lease_protocol& leases_ = protocols_.leases();
    const rowlock::protocol::queue_protocol& queue_ = protocols_.queue();
    const rowlock::protocol::batch_protocol& batch_ = protocols_.batches();
    std::unique_ptr<rowlock::sql::connection> db_;
};

/// A live session on its own connection, and its leases.
class protocol_session {
public:
    protocol_session(const lock_database& database, rowlock::session_id id,
                     const session_options& options = {})
        : protocol_session{database, database.source(), id, options} {}
    /// On a connection of `source`, which leads to `database`.
    protocol_session(const lock_database& database, const rowlock::sql::connection_source& source,
                     rowlock::session_id id, const session_options& options = {});

    void end() const { on_.end(id_); }
    [[nodiscard]] bool heartbeat() const { return on_.heartbeat(id_); }
    [[nodiscard]] bool is_live() const { return on_.is_live(id_); }

    [[nodiscard]] rowlock::protocol::grant_request request(
        std::string_view name, rowlock::grant_id grant_id,
        const request_options& options = {}) const;
    [[nodiscard]] rowlock::protocol::attempt acquire(std::string_view name,
                                                     rowlock::grant_id grant_id) const {
        return on_.acquire(name, id_, grant_id);
    }
    /// The token; nullopt if the lease was not granted.
    [[nodiscard]] std::optional<std::int64_t> try_acquire(std::string_view name,
                                                          rowlock::grant_id grant_id) const {
        return on_.try_acquire(name, id_, grant_id);
    }
    std::int64_t acquire_and_free(std::string_view name) const {
        return on_.acquire_and_free(name, id_);
    }
    [[nodiscard]] bool free(std::string_view name, rowlock::grant_id grant_id) const {
        return on_.free(name, id_, grant_id);
    }
    void enqueue(std::string_view name, rowlock::grant_id grant_id) const {
        on_.enqueue(name, id_, grant_id);
    }
    [[nodiscard]] bool reacquire(std::string_view name, rowlock::grant_id grant_id,
                                 std::int64_t known) const {
        return on_.reacquire(request(name, grant_id), known);
    }
    [[nodiscard]] std::vector<bool> release_all(
        std::span<const rowlock::protocol::granted_name> grants) const {
        return on_.release_all(id_, grants);
    }

    [[nodiscard]] rowlock::session_id id() const { return id_; }
    /// Its connection, on which it may act for other sessions too.
    [[nodiscard]] const protocol_connection& on() const { return on_; }
    [[nodiscard]] rowlock::sql::connection& db() const { return on_.db(); }
    [[nodiscard]] const rowlock::protocol::lease_protocol& leases() const { return on_.leases(); }
    [[nodiscard]] const rowlock::sql::statement_set& statements() const { return on_.statements(); }

private:
    protocol_connection on_;
    rowlock::session_id id_;
};

/// Makes the row of a lock that nobody holds, unless it has one.
void make_lock(rowlock::sql::connection& db, const rowlock::sql::statement_set& statements,
               std::string_view name);

/// The grant id that grant_next served; 0 if it served none.
[[nodiscard]] rowlock::grant_id grant_id_of(
    const std::optional<rowlock::protocol::handed_over>& next);

}  // namespace support
