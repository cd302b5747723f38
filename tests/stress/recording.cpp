#include "stress/recorded.hpp"
#include "support/lock_database.hpp"
#include "support/this_process.hpp"
#include <rowlock/migrations.hpp>

#include <exception>
#include <filesystem>
#include <iterator>

namespace stress {

using rowlock::sql::dialect;

namespace {

/// Records until when the caller of each queue entry waits, which the history does not say.
void record_limits(support::lock_database& database) {
    const std::string insert =
        "insert into rowlock_limit (grant_id, waits_until) values (new.grant_id, ";
    const std::string trigger =
        " trigger rowlock_limit after insert on rowlock_ticket for each row ";
    database.run("create table if not exists rowlock_limit (grant_id bigint, waits_until bigint)");
    if (database.speaks() == dialect::postgresql) {
        database.run(
            "create or replace function rowlock_limit() returns trigger language plpgsql "
            "set search_path from current as $$ begin " +
            insert + "(extract(epoch from new.waits_until) * 1000000)::bigint); return null; " +
            "end $$");
        database.run("create or replace" + trigger + "execute function rowlock_limit()");
        return;
    }
    database.run("drop trigger if exists rowlock_limit");
    const bool sqlite = database.speaks() == dialect::sqlite;
    database.run("create" + trigger + (sqlite ? "begin " : "") + insert + "new.waits_until)" +
                 (sqlite ? "; end" : ""));
}

/// They depend on a column that the removal of the tables drops.
void remove_limits(support::lock_database& database) {
    if (database.speaks() == dialect::postgresql) {
        database.run("drop function rowlock_limit() cascade");
    } else {
        database.run("drop trigger rowlock_limit");
    }
    database.run("drop table rowlock_limit");
}

}  // namespace

recording::recording(support::lock_database& database) : database_{database} {
    rowlock::record_history(database.source(), true);
    record_limits(database);
    if (database.speaks() != dialect::postgresql) return;
    database.run(
        "alter table rowlock_history add column if not exists snapshot text "
        "default txid_current_snapshot()::text, "
        "add column if not exists transaction bigint default txid_current()");
}

recording::~recording() {
    try {
        remove_limits(database_);
    } catch (const std::exception&) {
        // The server is gone, and its tables with it.
    }
}

records recording::read() const {
    const bool postgresql = database_.speaks() == dialect::postgresql;
    const std::string times = postgresql ? "(extract(epoch from at) * 1000000)::bigint, "
                                           "(extract(epoch from ends_at) * 1000000)::bigint"
                                         : "at, ends_at";
    std::unordered_map<std::string_view, history_kind> kinds;
    for (int i = 0; i <= static_cast<int>(history_kind::renewed); ++i) {
        const auto kind = static_cast<history_kind>(i);
        kinds[rowlock::to_string(kind)] = kind;
    }
    std::unordered_map<rowlock::grant_id, micros> limits;
    const auto limited = database_.run(
        "select grant_id, waits_until from rowlock_limit where waits_until is not null");
    for (std::size_t i = 0; i < limited.rows(); ++i) {
        limits[limited.integer<rowlock::grant_id>(i, 0)] = limited.integer(i, 1);
    }
    records all;
    for (std::int64_t last = 0;;) {
        const auto rows = database_.run(
            "select id, kind, name, token, session, grant_id, ticket, previous_session, " + times +
            (postgresql ? ", transaction, case when kind = 'queued' then snapshot end" : "") +
            " from rowlock_history where id > " + std::to_string(last) +
            " order by id limit 20000");
        if (rows.empty()) return all;
        for (std::size_t i = 0; i < rows.rows(); ++i) {
            const auto number = [&](std::size_t column) {
                return rows.maybe_integer(i, column).value_or(0);
            };
            record one;
            one.id = number(0);
            one.kind = kinds.at(rows.text(i, 1));
            one.name = rows.text(i, 2);
            one.token = number(3);
            one.session = rowlock::session_id{number(4)};
            one.grant_id = rowlock::grant_id{number(5)};
            one.ticket = rowlock::ticket_no{number(6)};
            one.previous_session = rowlock::session_id{number(7)};
            one.at = number(8);
            one.ends_at = number(9);
            const auto limit = limits.find(one.grant_id);
            if (one.kind == history_kind::queued && limit != limits.end()) {
                one.ends_at = limit->second;
            }
            if (postgresql) {
                one.transaction = number(10);
                one.snapshot = rows.text(i, 11);
            }
            all.push_back(std::move(one));
        }
        last = all.back().id;
    }
}

order_by recording::order() const {
    switch (database_.speaks()) {
        case dialect::postgresql:
            return order_by::snapshot;
        case dialect::mysql:
            return order_by::second;
        case dialect::sqlite:
            return order_by::ticket;
    }
    return order_by::ticket;
}

micros recording::slack() const {
    return database_.speaks() == dialect::sqlite ? 1'000 : 0;
}

baseline baseline_of(support::lock_database& database) {
    const std::filesystem::directory_iterator descriptors{"/proc/self/fd"};
    return {support::connections_of_this_process(), support::threads_of_this_process(),
            std::distance(begin(descriptors), end(descriptors)),
            database.number("select count(*) from rowlock_ticket"),
            database.number("select count(*) from rowlock_lock where session is not null")};
}

}  // namespace stress
