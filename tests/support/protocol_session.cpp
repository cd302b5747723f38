#include "support/protocol_session.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace support {

using namespace rowlock;
using protocol::attempt;
using protocol::grant_request;

namespace {

constexpr std::chrono::seconds statement_timeout{10};

grant_request make_request(std::string_view name, session_id session, grant_id grant_id,
                           const request_options& options) {
    return {name,           session, grant_id, options.thread, options.note, options.deadline_us,
            options.barging};
}

template <typename Values>
Values sorted(Values values) {
    std::sort(values.begin(), values.end());
    return values;
}

}  // namespace

protocol_connection::protocol_connection(const lock_database& database)
    : protocol_connection{database.source()} {}

protocol_connection::protocol_connection(const sql::connection_source& source)
    : protocols_{sql::statement_set{source.speaks(), {.tables = source.tables()}}},
      db_{source.connect(soon())} {
    leases_.sessions().set_up(*db_, statement_timeout, soon());
}

void protocol_connection::open(session_id session, const session_options& options) const {
    leases_.sessions().open(*db_,
                            {.id = session,
                             .owner = options.owner,
                             .host = "host",
                             .program = "program",
                             .pid = static_cast<std::int64_t>(session),
                             .ttl = options.ttl,
                             .wake = options.wake},
                            soon());
}

void protocol_connection::end(session_id session) const {
    leases_.sessions().end(*db_, session, soon());
}

bool protocol_connection::heartbeat(session_id session, std::int64_t revision) const {
    return leases_.sessions().heartbeat(*db_, session, revision, soon());
}

bool protocol_connection::is_live(session_id session) const {
    return leases_.sessions().state_of(*db_, session, soon()).live;
}

attempt protocol_connection::acquire(std::string_view name, session_id session, grant_id grant_id,
                                     const request_options& options) const {
    return leases_.acquire(*db_, make_request(name, session, grant_id, options), soon());
}

std::optional<std::int64_t> protocol_connection::try_acquire(std::string_view name,
                                                             session_id session, grant_id grant_id,
                                                             const request_options& options) const {
    const auto tried = acquire(name, session, grant_id, options);
    if (tried.what != attempt::outcome::granted) return std::nullopt;
    return tried.token;
}

std::int64_t protocol_connection::acquire_and_free(std::string_view name,
                                                   session_id session) const {
    constexpr rowlock::grant_id grant_id{900};
    const auto token = try_acquire(name, session, grant_id);
    REQUIRE(token);
    REQUIRE(free(name, session, grant_id));
    return *token;
}

bool protocol_connection::free(std::string_view name, session_id session, grant_id grant_id) const {
    return leases_.release(*db_, name, session, grant_id, soon());
}

bool protocol_connection::force_release(std::string_view name) const {
    protocol::victim victim;
    return leases_.force_release(*db_, name, victim, soon());
}

void protocol_connection::enqueue(std::string_view name, session_id session, grant_id grant_id,
                                  const request_options& options) const {
    queue_.enqueue(*db_, make_request(name, session, grant_id, options), soon());
}

protocol_connection::ids protocol_connection::cancel(const ids& grant_ids) const {
    return sorted(queue_.cancel(*db_, grant_ids, soon()));
}

protocol::queue_entries protocol_connection::entries_of(session_id session) const {
    return queue_.entries_of(*db_, session, soon());
}

void make_lock(sql::connection& db, const sql::statement_set& statements, std::string_view name) {
    const std::array<sql::value, 1> which{sql::value{name}};
    try {
        db.execute(statements("restore_lease"), which, soon());
    } catch (const error& failure) {
        if (!protocol::another_inserts(failure)) throw;
    }
}

std::optional<protocol::handed_over> protocol_connection::grant_next(std::string_view name,
                                                                     sql::deadline until) const {
    return serve_one(queue_, *db_, name, until);
}

protocol::release_outcome protocol_connection::release(std::string_view name, session_id session,
                                                       grant_id grant_id, bool contended) const {
    return queue_.release(*db_, name, session, grant_id, contended, soon());
}

std::optional<protocol::queue_grant> protocol_connection::served(std::string_view name,
                                                                 session_id session,
                                                                 grant_id grant_id) const {
    return queue_.served(*db_, name, session, grant_id, soon());
}

std::optional<protocol::confirmed_grant> protocol_connection::confirm_and_read_next(
    std::string_view name, session_id session, grant_id grant_id, bool durably) const {
    return queue_.confirm_and_read_next(*db_, name, session, grant_id, durably, soon());
}

std::optional<protocol::handed_over> protocol_connection::hand_over_to(
    std::string_view name, session_id session, grant_id grant_id, const protocol::next_waiter& next,
    bool may_be_asynchronous) const {
    return queue_.hand_over_to(*db_, name, session, grant_id, next,
                               {.may_be_asynchronous = may_be_asynchronous}, soon());
}

protocol_connection::names protocol_connection::names_with_waiters(const names& asked) const {
    return queue_.names_with_waiters(*db_, asked, soon());
}

protocol_connection::names protocol_connection::leave(session_id session,
                                                      const names& asked) const {
    return queue_.leave(*db_, session, asked, soon());
}

protocol_connection::names protocol_connection::queues_of_session(session_id session) const {
    names found;
    for (const auto& each : queue_.queues_of_session(*db_, session, soon())) {
        found.push_back(each.name);
    }
    return sorted(std::move(found));
}

void protocol_connection::delete_entries_of(session_id session) const {
    while (queue_.delete_entries_of(*db_, session, soon())) {
    }
}

std::vector<protocol::deadlock_found> protocol_connection::deadlocks(session_id session) const {
    return queue_.deadlocks(*db_, session, soon());
}

bool protocol_connection::reacquire(const grant_request& request, std::int64_t known) const {
    return batch_.reacquire(*db_, request, known, soon());
}

protocol_connection::tokens protocol_connection::acquire_all(
    std::span<const grant_request> requests) const {
    return batch_.acquire_all(*db_, requests, soon());
}

std::vector<bool> protocol_connection::release_all(
    session_id session, std::span<const protocol::granted_name> grants) const {
    return batch_.release_all(*db_, session, grants, soon());
}

void protocol_connection::run(const std::string& text) const {
    db_->query(text, soon());
}

std::int64_t protocol_connection::changed_by(const std::string& text) const {
    return db_->query(text, soon()).affected();
}

std::int64_t protocol_connection::number(const std::string& text) const {
    return db_->query(text, soon()).maybe_integer(0, 0).value_or(0);
}

protocol_session::protocol_session(const lock_database& database,
                                   const sql::connection_source& source, session_id id,
                                   const session_options& options)
    : on_{source.with_tables(database.source().tables())}, id_{id} {
    on_.open(id_, options);
}

grant_request protocol_session::request(std::string_view name, grant_id grant_id,
                                        const request_options& options) const {
    return make_request(name, id_, grant_id, options);
}

grant_id grant_id_of(const std::optional<protocol::handed_over>& next) {
    return next ? next->grant_id : grant_id{};
}

}  // namespace support
