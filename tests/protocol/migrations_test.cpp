#include "lock/client/reap_round.hpp"
#include "lock/protocol/barrier/barrier_protocol.hpp"
#include "lock/protocol/policy/policy_protocol.hpp"
#include "lock/protocol/run/run_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "protocol/scratch_database.hpp"
#include "quorum/quorum_protocol.hpp"
#include "schema/catalog.hpp"
#include "schema/migrator.hpp"
#include "schema/script.hpp"
#include "sql/table_names.hpp"
#include "support/protocols.hpp"
#include "support/waits.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/optimistic.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace std::string_literals;
using contract::scratch_database;
using contract::watched;
using rowlock::errc;
using rowlock::error;
using rowlock::migrate;
using rowlock::schema_status;
using rowlock::sql::connection_source;
using rowlock::sql::dialect;
using rowlock::sql::table_names;

namespace {

struct postgresql {
    static constexpr auto speaks = dialect::postgresql;
};
struct mariadb {
    static constexpr auto speaks = dialect::mysql;
};
struct sqlite {
    static constexpr auto speaks = dialect::sqlite;
};

#define EVERY_DATABASE postgresql, mariadb, sqlite

using versions = std::vector<int>;
const versions nothing;
// The library's migrations, there and back.
constexpr int latest = 1;
constexpr int after_latest = latest + 1;
const versions all_up{1};
const versions all_down{1};

rowlock::sql::deadline soon() {
    return std::chrono::steady_clock::now() + 30s;
}

std::vector<std::string> all_tables(const std::string& prefix = "rowlock_") {
    return {prefix + "barrier",   prefix + "hold",    prefix + "lock",   prefix + "member",
            prefix + "migration", prefix + "party",   prefix + "policy", prefix + "quorum",
            prefix + "run",       prefix + "session", prefix + "ticket", prefix + "token_floor",
            prefix + "version"};
}

template <typename Call>
error failure_of(Call call) {
    try {
        call();
    } catch (const error& failure) {
        return failure;
    }
    FAIL("nothing was thrown");
    return error{errc::database_error, "nothing was thrown"};
}

template <typename Call>
errc kind_of(Call call) {
    return failure_of(call).kind();
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

void require_current(const connection_source& source) {
    const auto connection = source.connect(soon());
    rowlock::require_current_schema(*connection, source.tables(), soon());
}

/// Whether the statement takes the lock that keeps other migrators away.
bool takes_lock(std::string_view sql) {
    return contains(sql, "advisory") || contains(sql, "get_lock(") ||
           contains(sql, "begin immediate");
}

bool records(std::string_view sql) {
    return contains(sql, "insert into rowlock_migration");
}

versions move(const rowlock::schema::catalog& known, const connection_source& source, int target) {
    const auto connection = source.connect(soon());
    const rowlock::migration_options options;
    return rowlock::schema::migrator{*connection, known, source.tables(), options}.move_to(target);
}

/// Three migrations, each written as one of the library is on this database. They make tables and
/// rows; change a table; and remove what the first has made.
class three_migrations {
public:
    explicit three_migrations(dialect speaks) {
        const bool mysql = speaks == dialect::mysql;
        known_.record = rowlock::schema::library_catalog(speaks).record;
        known_.numbered = {
            {1, "shelf",
             mysql ? "create table if not exists rowlock_shelf (id integer not null primary key);\n"
                     "insert into rowlock_shelf (id) values (1) on duplicate key update id = 1;\n"
                     "create table if not exists rowlock_lamp (id integer not null primary key);\n"
                   : "create table rowlock_shelf (id integer not null primary key);\n"
                     "insert into rowlock_shelf (id) values (1);\n"
                     "create table rowlock_lamp (id integer not null primary key);\n",
             "drop table if exists rowlock_lamp;\ndrop table if exists rowlock_shelf;\n"},
            {2, "kind",
             mysql ? "alter table rowlock_shelf add column kind integer not null default 0;\n"
                     "alter table rowlock_shelf add constraint rowlock_shelf_kind check (kind >= "
                     "0);\n"
                     "insert into rowlock_shelf (id, kind) values (2, 2)\n"
                     "    on duplicate key update id = 2;\n"
                   : "alter table rowlock_shelf add column kind integer not null default 0;\n"
                     "insert into rowlock_shelf (id, kind) values (2, 2);\n",
             mysql ? "delete from rowlock_shelf where kind = 2;\n"
                     "alter table rowlock_shelf drop constraint rowlock_shelf_kind;\n"
                     "alter table rowlock_shelf drop column kind;\n"
                   : "delete from rowlock_shelf where kind = 2;\n"
                     "alter table rowlock_shelf drop column kind;\n"},
            {3, "door",
             mysql ? "drop table if exists rowlock_lamp;\n"
                     "create table if not exists rowlock_door (id integer not null primary key);\n"
                   : "drop table rowlock_lamp;\n"
                     "create table rowlock_door (id integer not null primary key);\n",
             mysql ? "drop table if exists rowlock_door;\n"
                     "create table if not exists rowlock_lamp (id integer not null primary key);\n"
                   : "drop table rowlock_door;\n"
                     "create table rowlock_lamp (id integer not null primary key);\n"}};
    }
    [[nodiscard]] int latest() const { return known_.latest(); }
    versions migrate(const connection_source& source, int target) const {
        return move(known_, source, target);
    }
    [[nodiscard]] int version(const connection_source& source) const {
        const auto connection = source.connect(soon());
        const rowlock::migration_options options;
        return rowlock::schema::migrator{*connection, known_, source.tables(), options}.version();
    }
    /// What there is at the version 0 or latest(), as text: the tables, and the rows of the shelf.
    static std::string left_by(scratch_database& db) {
        std::string text;
        for (const auto& each : db.tables()) text += each + " ";
        if (!contains(text, "rowlock_shelf")) return text;
        const auto rows = db.run("select id, kind from rowlock_shelf order by id");
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            text += std::to_string(rows.integer(row, 0)) + "/" +
                    std::to_string(rows.integer(row, 1)) + " ";
        }
        return text;
    }
    [[nodiscard]] static std::string expected(int version) {
        return version == 0 ? "" : "rowlock_door rowlock_migration rowlock_shelf 1/0 2/2 ";
    }

private:
    rowlock::schema::catalog known_;
};

/// The library's migrations and one more.
class longer_catalog {
public:
    longer_catalog(dialect speaks, std::string up, std::string down)
        : up_{std::move(up)},
          down_{std::move(down)},
          known_{rowlock::schema::library_catalog(speaks)} {
        known_.numbered.push_back({known_.latest() + 1, "next", up_, down_});
    }
    longer_catalog(const longer_catalog&) = delete;
    longer_catalog& operator=(const longer_catalog&) = delete;

    versions migrate(const connection_source& source, int target) const {
        return move(known_, source, target);
    }
    [[nodiscard]] int latest() const { return known_.latest(); }

private:
    std::string up_, down_;
    rowlock::schema::catalog known_;
};

/// The SQL that docs/migrations.md gives for a database, with the role's name replaced and `shop`
/// by `place`.
std::vector<std::string> documented_grants(dialect speaks, const std::string& place,
                                           const std::string& role) {
    std::ifstream file{ROWLOCK_SOURCE_DIR "/docs/migrations.md"};
    const std::string page{std::istreambuf_iterator<char>{file}, {}};
    const auto marker = page.find("migrations_test.cpp: "s + std::string{to_string(speaks)});
    REQUIRE(marker != std::string::npos);
    const auto begin = page.find("```sql\n", marker) + 7;
    auto sql = page.substr(begin, page.find("```", begin) - begin);
    sql = std::regex_replace(sql, std::regex{"shop_app"}, role);
    sql = std::regex_replace(sql, std::regex{"\\bshop\\b"}, place);
    return rowlock::schema::split_statements(sql, speaks);
}

/// Makes a role for a test and removes it.
class scratch_role {
public:
    explicit scratch_role(scratch_database& db) : db_{db}, name_{db.name() + "_app"} {
        db_.run(postgresql() ? "create role " + name_ + " login password 'of-the-test'"
                             : "create user '" + name_ + "'@'%' identified by 'of-the-test'");
    }
    scratch_role(const scratch_role&) = delete;
    scratch_role& operator=(const scratch_role&) = delete;
    ~scratch_role() {
        try {
            if (postgresql()) db_.run("drop owned by " + name_);
            db_.run(postgresql() ? "drop role " + name_ : "drop user '" + name_ + "'@'%'");
        } catch (const std::exception& failure) {
            MESSAGE(std::string{failure.what()});
        }
    }

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] connection_source source() const { return db_.source_as(name_, "of-the-test"); }

private:
    [[nodiscard]] bool postgresql() const { return db_.speaks() == dialect::postgresql; }

    scratch_database& db_;
    std::string name_;
};

/// Everything the library does to its tables, by kind of access.
std::vector<std::string> accesses(dialect speaks, const table_names& names) {
    const bool postgresql = speaks == dialect::postgresql;
    const std::string now = postgresql ? "clock_timestamp()" : "1";
    const std::string ended = postgresql ? "true" : "1";
    const std::string share = postgresql ? " for share" : " lock in share mode";
    std::vector<std::string> made{
        "insert into rowlock_session (id, owner, host, pid, program, ttl_us, expires_at, "
        "opened_at) values (1, 'o', 'h', 1, 'p', 1, " +
            now + ", " + now + ")",
        "update rowlock_session set beats = beats + 1, ended = " + ended,
        "select id from rowlock_session for update",
        "insert into rowlock_lock (name, token, session, changed_at) select 'n', floor + 1, 1, " +
            now + " from rowlock_token_floor" + (postgresql ? "" : share),
        "update rowlock_lock set token = token + 1",
        "select l.token from rowlock_lock l join rowlock_session s on s.id = l.session" + share,
        "insert into rowlock_ticket (name, session, grant_id, enqueued_at) values ('n', 1, 1, " +
            now + ")",
        postgresql ? "select ticket from rowlock_ticket for update"
                   : "select ticket from rowlock_ticket",
        "delete from rowlock_ticket where ticket = 1",
        "delete from rowlock_lock where name = 'none'",
        "update rowlock_lock set used = used + 1",
        postgresql ? "select used from rowlock_lock for update" : "select used from rowlock_lock",
        "insert into rowlock_hold (name, grant_id, session, weight, token, acquired_at) values "
        "('n', 1, 1, 1, 1, " +
            now + ")",
        "update rowlock_hold set acquired_at = " + now,
        "delete from rowlock_hold where name = 'n'",
        "insert into rowlock_run (name, token, began_at) values ('n', 1, " + now + ")",
        "select token from rowlock_run for update",
        "update rowlock_run set finished = 1",
        "insert into rowlock_barrier (name, generation, kind, size, changed_at) values ('n', 1, 0, "
        "1, " +
            now + ")",
        "select size from rowlock_barrier for update",
        "update rowlock_barrier set arrived = 1",
        "delete from rowlock_barrier where name = 'n'",
        "insert into rowlock_party (name, grant_id, generation, session, stage, joined_at) values "
        "('n', 1, 1, 1, 0, " +
            now + ")",
        "select stage from rowlock_party",
        "update rowlock_party set stage = 1",
        "delete from rowlock_party where name = 'n'",
        "insert into rowlock_policy (name, max_hold_us) values ('n', 1)",
        "select max_hold_us from rowlock_policy",
        "update rowlock_policy set max_hold_us = 2",
        "delete from rowlock_policy where name = 'n'",
        "insert into rowlock_quorum (name, token, changed_at) values ('n', 1, " + now + ")",
        "select token from rowlock_quorum" + share,
        "update rowlock_quorum set token = 2",
        "insert into rowlock_member (id, quorum, epoch, members, ready_for, floor, max_ttl_us, "
        "changed_at) values (1, 'q', 1, 's', 's', 0, 1, " +
            now + ")",
        "select epoch from rowlock_member" + share,
        "update rowlock_member set epoch = 2",
        "delete from rowlock_lock where name = 'n'",
        "delete from rowlock_session where id = 1",
        "insert into rowlock_version (resource, version, created_at, updated_at) values ('r', 1, " +
            now + ", " + now + ")",
        "update rowlock_version set version = version + 1",
        "select floor from rowlock_token_floor for update",
        "update rowlock_token_floor set floor = floor + 1, settled = floor"};
    for (auto& sql : made) {
        sql = rowlock::sql::qualify(sql, speaks, names);
    }
    return made;
}

/// Instead of REQUIRE, which would not show what the database denied.
void need(bool holds, int line = __builtin_LINE()) {
    if (!holds) throw std::logic_error{"check failed in line " + std::to_string(line)};
}

/// Runs the statements of clients and the reaper, from the first session to the last deleted row.
/// @throws error what the database denied
/// Every kind of access to the tables of semaphores.
void use_permits(rowlock::sql::connection& db, const rowlock::sql::statement_set& statements) {
    const auto semaphores = rowlock::protocol::make_semaphore_protocol(statements);
    const auto leases = rowlock::protocol::make_lease_protocol(statements);
    const auto queue = rowlock::protocol::make_queue_protocol(statements, *leases);
    constexpr rowlock::session_id session{21};
    leases->sessions().open(db, {session, "o", "h", "p", 1, 1min}, soon());
    const auto of = [&](std::int64_t grant) {
        return rowlock::protocol::grant_request{.name = "s",
                                                .session = session,
                                                .grant_id = rowlock::grant_id{grant},
                                                .thread = {},
                                                .note = {},
                                                .deadline_us = {},
                                                .permits = {.count = 1}};
    };
    semaphores->set_capacity(db, "s", 1, soon());
    need(semaphores->permits_of(db, session, soon()).empty());
    need(semaphores->acquire(db, of(211), soon()).what ==
         rowlock::protocol::attempt::outcome::granted);
    need(semaphores->served(db, "s", session, rowlock::grant_id{211}, soon()).has_value());
    queue->enqueue(db, of(212), soon());
    queue->enqueue(db, of(213), soon());
    const std::vector given_up{rowlock::grant_id{213}};
    need(queue->cancel(db, given_up, soon()) == given_up);
    need(semaphores->release(db, "s", session, rowlock::grant_id{211}, 0, soon()));
    constexpr auto counted = rowlock::protocol::queue_head::counted;
    need(queue->serve(db, "s", counted, soon()).waiters.size() == 1);
    auto exclusive = of(221);
    exclusive.name = "m";
    exclusive.permits = {.count = rowlock::protocol::permits_for(rowlock::lock_mode::exclusive),
                         .of = rowlock::protocol::counter_kind::shared_mutex};
    need(semaphores->acquire(db, exclusive, soon()).what ==
         rowlock::protocol::attempt::outcome::contested);  // it made the row
    need(semaphores->acquire(db, exclusive, soon()).what ==
         rowlock::protocol::attempt::outcome::granted);
    need(semaphores->shrink(db, "m", session, rowlock::grant_id{221}, 1, soon()));
    exclusive.grant_id = rowlock::grant_id{222};
    exclusive.permits.count -= 1;
    exclusive.permits.upgrades = rowlock::grant_id{221};
    queue->enqueue(db, exclusive, soon());
    need(queue->serve(db, "m", counted, soon()).waiters.size() == 1);
    need(semaphores->end_upgrade(db, "m", exclusive.grant_id, std::nullopt, soon()));
    exclusive.grant_id = rowlock::grant_id{223};
    need(semaphores->acquire(db, exclusive, soon()).what ==
         rowlock::protocol::attempt::outcome::granted);
    leases->sessions().end(db, session, soon());
    need(semaphores->sweep(db, "s", soon()) == 1);
    need(semaphores->sweep(db, "m", soon()) == 1);
    leases->sessions().remove(db, session, soon());
}

/// Every kind of access to the records of runs.
void use_runs(rowlock::sql::connection& db, const rowlock::sql::statement_set& statements) {
    const auto leases = rowlock::protocol::make_lease_protocol(statements);
    const rowlock::protocol::run_protocol runs{statements};
    constexpr rowlock::session_id session{31};
    leases->sessions().open(db, {session, "o", "h", "p", 1, 1min}, soon());
    const auto token =
        leases->acquire(db, {"run", session, rowlock::grant_id{311}, {}, {}, {}}, soon()).token;
    using outcome = rowlock::protocol::run_answer::outcome;
    need(runs.begin(db, {.name = "run", .session = session, .token = token}, soon()).what ==
         outcome::begun);
    need(runs.finish(db, "run", session, token, "1", soon()));
    leases->sessions().end(db, session, soon());
    leases->sessions().remove(db, session, soon());
}

/// Every kind of access to the tables of latches and double barriers.
void use_barriers(rowlock::sql::connection& db, const rowlock::sql::statement_set& statements) {
    const auto leases = rowlock::protocol::make_lease_protocol(statements);
    const rowlock::protocol::barrier_protocol meetings{statements};
    constexpr rowlock::session_id session{41};
    leases->sessions().open(db, {session, "o", "h", "p", 1, 1min}, soon());
    using namespace rowlock::protocol;
    admission what{.name = "latch", .id = rowlock::grant_id{410}};
    need(meetings.admit(db, what, soon()).what == joining::outcome::joined);
    what = {.name = "latch",
            .generation = what.begun,
            .id = rowlock::grant_id{411},
            .by = session,
            .stage = party_stage::registered};
    need(meetings.admit(db, what, soon()).what == joining::outcome::joined);
    const party_id party{.name = "latch", .generation = what.generation, .id = what.id};
    need(meetings.look(db, party, soon())->registered == 1);
    const auto round = meetings.change(db, party, barrier_event::arrive, soon());
    need(round && round->round.is_over());
    need(!meetings.old_rounds(db, {}, 9, 0us, soon()).empty());
    need(meetings.retire(db, party, 0us, soon()));
    leases->sessions().end(db, session, soon());
    leases->sessions().remove(db, session, soon());
}

/// Every kind of access to the tables of a quorum. SQLite is no member.
void use_quorum(rowlock::sql::connection& db, const rowlock::sql::statement_set& statements,
                const rowlock::protocol::lease_protocol& leases) {
    if (db.speaks() == dialect::sqlite) return;
    const rowlock::protocol::quorum_protocol quorum{statements};
    const auto server = leases.sessions().server_of(db, soon()).value_or("");
    const rowlock::protocol::quorum_membership as{.quorum = "q",
                                                  .epoch = 1,
                                                  .members = {server},
                                                  .ready_for = server,
                                                  .floor = 0,
                                                  .longest_ttl = 1h};
    quorum.found(db, as, soon());
    need(quorum.membership(db, soon()).has_value());
    constexpr rowlock::session_id session{15};
    static_cast<void>(leases.sessions().open(
        db, {.id = session, .owner = "o", .host = "h", .program = "p", .pid = 1, .ttl = 1min},
        soon()));
    need(leases
             .acquire(db,
                      {.name = "q",
                       .session = session,
                       .grant_id = rowlock::grant_id{151},
                       .thread = {},
                       .note = {},
                       .deadline_us = {}},
                      soon())
             .token > 0);
    const rowlock::protocol::quorum_protocol::grant_key mine{"q", session, rowlock::grant_id{151}};
    need(quorum.raise(db, mine, {"q", 1}, {}, soon()) == 1);
    need(quorum.raise(db, mine, {"q", 1}, 5, soon()) == 5);
    quorum.seal(db, "q", 7, "q", soon());
    need(quorum.leases(db, soon()).size() == 1);
    need(quorum.greatest_token(db, soon()) == 7);
    auto next = as;
    ++next.epoch;
    need(quorum.raise_epoch(db, next, soon()));
    leases.sessions().end(db, session, soon());
    leases.sessions().remove(db, session, soon());
}

/// Every kind of access to the policies. The reaper leaves them to others if it may not read them.
void use_policies(rowlock::sql::connection& db, const rowlock::sql::statement_set& statements) {
    const rowlock::protocol::policy_protocol policies{statements};
    policies.set_max_hold(db, "n", 1s, soon());
    policies.set_max_hold(db, "n", 2s, soon());
    need(policies.max_hold(db, "n", soon()) == 2s);
    policies.set_max_hold(db, "n", std::nullopt, soon());
    need(!policies.max_hold(db, "n", soon()));
}

void use_everything(const connection_source& source) {
    const support::protocols protocols{
        rowlock::sql::statement_set{source.speaks(), {.tables = source.tables()}}};
    const auto& leases = protocols.leases();
    const auto& queue = protocols.queue();
    const auto db = source.connect(soon());
    rowlock::require_current_schema(*db, source.tables(), soon());
    leases.sessions().set_up(*db, 5s, soon());
    for (const std::int64_t session : {11, 12, 13}) {
        leases.sessions().open(*db, {rowlock::session_id{session}, "o", "h", "p", 1, 1min}, soon());
    }
    need(leases.sessions().heartbeat(*db, rowlock::session_id{11}, 0, soon()));
    const rowlock::protocol::grant_request first{
        "n", rowlock::session_id{11}, rowlock::grant_id{111}, {}, {}, {}};
    const rowlock::protocol::grant_request next{
        "n", rowlock::session_id{12}, rowlock::grant_id{121}, {}, {}, {}};
    const rowlock::protocol::grant_request last{
        "n", rowlock::session_id{13}, rowlock::grant_id{131}, {}, {}, {}};
    using rowlock::protocol::attempt;
    need(leases.acquire(*db, first, soon()).what == attempt::outcome::granted);
    queue.enqueue(*db, next, soon());
    queue.enqueue(*db, last, soon());
    need(queue.entries_of(*db, rowlock::session_id{12}, soon()).waiting.size() == 1);
    const std::vector given_up{rowlock::grant_id{131}};
    need(queue.cancel(*db, given_up, soon()) == given_up);
    need(queue.release(*db, "n", rowlock::session_id{11}, rowlock::grant_id{111}, true, soon())
             .next.has_value());
    need(queue
             .confirm_and_read_next(*db, "n", rowlock::session_id{12}, rowlock::grant_id{121}, true,
                                    soon())
             .has_value());
    rowlock::protocol::victim victim;
    need(leases.force_release(*db, "n", victim, soon()));
    need(leases.inspect(*db, "n", soon()).has_value());
    (void)leases.list(*db, "", {}, soon());
    leases.sessions().end(*db, rowlock::session_id{12}, soon());
    for (const std::int64_t session : {11, 12, 13})
        leases.sessions().remove(*db, rowlock::session_id{session}, soon());

    const rowlock::sql::statement_set statements{source.speaks(), {.tables = source.tables()}};
    use_permits(*db, statements);
    use_runs(*db, statements);
    use_barriers(*db, statements);
    use_policies(*db, statements);
    use_quorum(*db, statements, leases);

    const rowlock::versions resources{source.tables()};
    const auto made = resources.create(*db, rowlock::lock_name{"r"});
    need(made && resources.erase(*db, rowlock::lock_name{"r"}, *made));
    (void)resources.list(*db);

    // A round is not validated: no other statement runs here.
    const rowlock::reaper_options often{.retention = 200ms, .grace = 40ms, .statement_timeout = 5s};
    need(support::eventually([&] {
        return rowlock::detail::reap_round(*db, protocols.statements(), often).leases_deleted > 0;
    }));
}

/// Runs `work` in a child process; its exit status, or 128 + the signal that ended it.
template <typename Work>
pid_t in_child(Work work) {
    std::fflush(nullptr);  // or the child may print it again
    const pid_t child = ::fork();
    if (child != 0) return child;
    int status = 99;
    try {
        status = work();
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "in a child: %s\n", failure.what());
    }
    ::_exit(status);
}

int status_of(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE_TEMPLATE("up, down and up again works, and there is nothing to do in between", Database,
                   EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    CHECK(schema_status(db->source()).version == 0);
    CHECK_FALSE(schema_status(db->source()).current());
    CHECK(migrate(db->source(), {}, 0) == nothing);
    CHECK(db->tables().empty());
    for (int round = 0; round < 2; ++round) {
        CHECK(migrate(db->source()) == all_up);
        CHECK(schema_status(db->source()).current());
        CHECK_NOTHROW(require_current(db->source()));
        CHECK(db->tables() == all_tables());
        CHECK(migrate(db->source()) == nothing);
        CHECK(migrate(db->source(), {}, latest) == nothing);
        const auto floor = db->run("select id, floor, settled from rowlock_token_floor");
        REQUIRE(floor.rows() == 1);
        CHECK(floor.integer(0, 0) == 1);
        CHECK(floor.integer(0, 1) == 0);
        CHECK(floor.integer(0, 2) == 0);
        CHECK(migrate(db->source(), {}, 0) == all_down);
        CHECK(db->tables().empty());
        CHECK(schema_status(db->source()).version == 0);
        CHECK(migrate(db->source(), {}, 0) == nothing);
    }
}

TEST_CASE_TEMPLATE("of eight threads that migrate at once only one applies the migrations",
                   Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const three_migrations three{Database::speaks};
    int at = 0;
    for (const int target : {three.latest(), 0, three.latest()}) {
        std::barrier start{8};
        std::atomic<int> applied{0};
        std::atomic<int> failed{0};
        std::vector<std::thread> threads;
        threads.reserve(8);
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                start.arrive_and_wait();
                try {
                    applied += static_cast<int>(three.migrate(db->source(), target).size());
                } catch (const std::exception& failure) {
                    ++failed;
                    MESSAGE(std::string{failure.what()});
                }
            });
        }
        for (auto& thread : threads) thread.join();
        CHECK(applied == std::abs(target - at));
        at = target;
        CHECK(failed == 0);
        CHECK(three.version(db->source()) == target);
        CHECK(three_migrations::left_by(*db) == three_migrations::expected(target));
    }
}

TEST_CASE_TEMPLATE("of eight processes that migrate at once only one applies the migrations",
                   Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const three_migrations three{Database::speaks};
    int start[2];
    REQUIRE(::pipe(start) == 0);
    std::vector<pid_t> children;
    children.reserve(8);
    for (int i = 0; i < 8; ++i) {
        children.push_back(in_child([&] {
            ::close(start[1]);
            char ignored = 0;
            (void)!::read(start[0], &ignored, 1);  // until all of them have started
            return static_cast<int>(three.migrate(db->source(), three.latest()).size());
        }));
    }
    ::close(start[0]);
    ::close(start[1]);
    int applied = 0;
    for (const pid_t child : children) applied += status_of(child);
    CHECK(applied == three.latest());
    CHECK(three_migrations::left_by(*db) == three_migrations::expected(three.latest()));
}

TEST_CASE_TEMPLATE("a second migrator waits for the first, does nothing, and gives up in time",
                   Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    std::promise<void> first_at_work;
    std::promise<void> second_waits;
    std::promise<void> go_on;
    std::atomic<bool> second_asked{false};
    bool stopped = false;

    // Stops where the first tables are made and their migration is not recorded yet.
    auto first = std::async(std::launch::async, [&] {
        return migrate(watched(db->source(), [&](std::string_view sql) {
            if (!records(sql) || std::exchange(stopped, true)) return;
            first_at_work.set_value();
            go_on.get_future().wait_for(1min);
        }));
    });
    REQUIRE(first_at_work.get_future().wait_for(30s) == std::future_status::ready);
    // In a stall another statement may have met the limit.
    CHECK(support::eventually([&] {
        const auto gave_up = failure_of([&] { migrate(db->source(), {.wait = 300ms}); });
        return gave_up.kind() == errc::timed_out &&
               contains(gave_up.what(), "another process is migrating this");
    }));

    auto second = std::async(std::launch::async, [&] {
        return migrate(watched(db->source(), [&](std::string_view sql) {
            if (takes_lock(sql) && !second_asked.exchange(true)) second_waits.set_value();
        }));
    });
    CHECK(second_waits.get_future().wait_for(30s) == std::future_status::ready);
    CHECK(second.wait_for(100ms) == std::future_status::timeout);
    go_on.set_value();
    CHECK(first.get() == all_up);
    CHECK(second.get() == nothing);
    CHECK_NOTHROW(require_current(db->source()));
}

TEST_CASE_TEMPLATE("with a current schema nothing is locked and nothing is written", Database,
                   EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    migrate(db->source());
    std::vector<std::string> log;
    const auto source = watched(db->source(), [&](std::string_view sql) { log.emplace_back(sql); });
    CHECK(migrate(source) == nothing);
    CHECK(schema_status(source).current());
    // On two connections, which state their settings first; MySQL and MariaDB are asked which
    // they are.
    std::erase_if(log, [](const std::string& sql) {
        return sql.starts_with("/* rowlock state_settings */") ||
               sql.find(" global_variables ") != std::string::npos;
    });
    CHECK(log.size() <= 4);
    for (const auto& sql : log) {
        CAPTURE(sql);
        CHECK(sql.starts_with("select "));
        CHECK_FALSE(takes_lock(sql));
    }
    log.clear();
    CHECK_NOTHROW(require_current(source));
    CHECK(log.size() == 1);
}

TEST_CASE_TEMPLATE("tables of a newer library are refused and left alone", Database,
                   EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const longer_catalog newer{Database::speaks, "create table rowlock_extra (a integer);\n",
                               "drop table rowlock_extra;\n"};
    CHECK(newer.migrate(db->source(), newer.latest()) == (versions{1, 2}));
    for (const auto& failure : {failure_of([&] { migrate(db->source()); }),
                                failure_of([&] { migrate(db->source(), {}, 0); }),
                                failure_of([&] { (void)schema_status(db->source()); }),
                                failure_of([&] { require_current(db->source()); })}) {
        CHECK(failure.kind() == errc::schema_outdated);
        CHECK(contains(failure.what(),
                       "the database has migration " + std::to_string(after_latest) +
                           ", this rowlock knows up to " + std::to_string(latest) + ": upgrade"));
    }
    CHECK(db->tables().size() == all_tables().size() + 1);
    CHECK(newer.migrate(db->source(), latest) == versions{newer.latest()});
    CHECK_NOTHROW(require_current(db->source()));
    CHECK(db->tables() == all_tables());
}

TEST_CASE_TEMPLATE(
    "clients work with tables of a later library that can stand this one, and do not change them",
    Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const std::string up = "-- One more.\n-- oldest library: " + std::to_string(latest) +
                           "\ncreate table rowlock_extra (a integer);\n";
    const longer_catalog later{Database::speaks, up, "drop table rowlock_extra;\n"};
    migrate(db->source());
    rowlock::client before{db->source()};
    auto held = before.acquire("a");
    CHECK(later.migrate(db->source(), later.latest()) == versions{after_latest});

    // One that runs, and one that starts now.
    CHECK(held.held());
    CHECK_NOTHROW(held.release());
    rowlock::client after{db->source()};
    CHECK(after.acquire("a").held());
    CHECK_NOTHROW(require_current(db->source()));
    const auto seen = schema_status(db->source());
    CHECK(seen.current());
    CHECK(seen.version == after_latest);
    CHECK(seen.latest == latest);
    CHECK(migrate(db->source()) == nothing);
    for (const auto& failure : {failure_of([&] { migrate(db->source(), {}, latest); }),
                                failure_of([&] { migrate(db->source(), {}, 0); }),
                                failure_of([&] { rowlock::record_history(db->source(), true); })}) {
        CHECK(failure.kind() == errc::schema_outdated);
        CHECK(contains(failure.what(), "only the later rowlock can change it"));
    }
    CHECK(db->tables().size() == all_tables().size() + 1);

    // A later one still, which says nothing of others.
    db->run("update rowlock_migration set oldest_library = null where version = " +
            std::to_string(after_latest));
    CHECK(kind_of([&] { require_current(db->source()); }) == errc::schema_outdated);
    CHECK(later.migrate(db->source(), latest) == versions{after_latest});
    CHECK_NOTHROW(require_current(db->source()));
}

TEST_CASE_TEMPLATE("an edited migration is refused and left alone", Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    migrate(db->source());
    db->run("update rowlock_migration set checksum = '0123456789abcdef'");
    for (const auto& failure : {failure_of([&] { migrate(db->source()); }),
                                failure_of([&] { migrate(db->source(), {}, 0); }),
                                failure_of([&] { (void)schema_status(db->source()); }),
                                failure_of([&] { require_current(db->source()); })}) {
        CHECK(failure.kind() == errc::schema_outdated);
        CHECK(contains(failure.what(), "migration 1 (initial) of the database is not the one"));
    }
    CHECK(db->tables() == all_tables());
}

TEST_CASE_TEMPLATE("a database without tables says what to run", Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const auto missing = failure_of([&] { require_current(db->source()); });
    CHECK(missing.kind() == errc::schema_outdated);
    CHECK(contains(missing.what(),
                   "no rowlock tables with the prefix rowlock_: run `rowlock migrate`"));
    migrate(db->source());
    CHECK(kind_of([&] { require_current(db->source().with_tables({.prefix = "other_"})); }) ==
          errc::schema_outdated);
    db->run("delete from rowlock_migration");
    CHECK(kind_of([&] { require_current(db->source()); }) == errc::schema_outdated);
}

TEST_CASE_TEMPLATE("a table of the same name that is not ours is refused", Database,
                   EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    db->run("create table rowlock_migration (theirs integer)");
    const auto failure = failure_of([&] { migrate(db->source()); });
    CHECK(failure.kind() == errc::schema_outdated);
    CHECK(contains(failure.what(), "rowlock_migration was not made by rowlock"));
    CHECK(kind_of([&] { migrate(db->source(), {}, 0); }) == errc::schema_outdated);
    CHECK(db->tables().size() == 1);
}

TEST_CASE_TEMPLATE("two prefixes share a database and do not see each other", Database,
                   EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const table_names shop{.prefix = "shop_"};
    const table_names billing{.prefix = "_b1"};
    auto other =
        std::async(std::launch::async, [&] { return migrate(db->source().with_tables(billing)); });
    CHECK(migrate(db->source().with_tables(shop)) == all_up);
    CHECK(other.get() == all_up);
    CHECK(db->tables("shop_") == all_tables("shop_"));
    CHECK(db->tables("_b1") == all_tables("_b1"));
    CHECK(db->tables().empty());

    db->run("update shop_token_floor set floor = 5");
    CHECK(db->run("select floor from _b1token_floor").integer(0, 0) == 0);
    CHECK(migrate(db->source().with_tables(shop), {}, 0) == all_down);
    CHECK(db->tables("shop_").empty());
    CHECK_NOTHROW(require_current(db->source().with_tables(billing)));
}

TEST_CASE_TEMPLATE("the printed script makes what the library accepts", Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    std::vector<table_names> places{{}, {.prefix = "shop_"}};
    if (Database::speaks == dialect::postgresql) places.push_back({.schema = "order"});
    for (const auto& names : places) {
        const auto script = rowlock::migration_script(Database::speaks, names);
        for (const auto& sql : rowlock::schema::split_statements(script, Database::speaks)) {
            db->run(sql);
        }
        CHECK_NOTHROW(require_current(db->source().with_tables(names)));
        CHECK(migrate(db->source().with_tables(names)) == nothing);
        CHECK(migrate(db->source().with_tables(names), {}, 0) == all_down);
    }
    CHECK(db->tables("").size() == (Database::speaks == dialect::sqlite ? 1 : 0));
}

TEST_CASE_TEMPLATE(
    "a migration that fails leaves nothing half-recorded, and the corrected one runs", Database,
    EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const longer_catalog broken{
        Database::speaks,
        "create table if not exists rowlock_extra (a integer);\ncreate table nonsense;\n",
        "drop table if exists rowlock_extra;\n"};
    const auto failure = failure_of([&] { broken.migrate(db->source(), broken.latest()); });
    CHECK(contains(failure.what(), "migration " + std::to_string(after_latest) + " (next): "));
    if (Database::speaks == dialect::mysql) {
        CHECK(schema_status(db->source()).version == latest);
    } else {
        CHECK(db->tables().empty());
    }

    CHECK(migrate(db->source()).size() == (Database::speaks == dialect::mysql ? 0 : latest));
    CHECK_THROWS_AS(broken.migrate(db->source(), broken.latest()), error);
    CHECK(schema_status(db->source()).version == latest);
    CHECK(db->tables().size() ==
          all_tables().size() + (Database::speaks == dialect::mysql ? 1 : 0));

    const longer_catalog corrected{Database::speaks,
                                   "create table if not exists rowlock_extra (a integer);\n",
                                   "drop table if exists rowlock_extra;\n"};
    CHECK(corrected.migrate(db->source(), corrected.latest()) == versions{after_latest});
    CHECK(corrected.migrate(db->source(), 0) == (versions{2, 1}));
    CHECK(db->tables().empty());
}

TEST_CASE_TEMPLATE("the next migrator completes one that was killed before any of its statements",
                   Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const three_migrations three{Database::speaks};
    constexpr int killed = 128 + SIGKILL;
    // Up and down in turn, until in either direction there is no such statement any more.
    int up = killed;
    int down = killed;
    for (int fatal = 1; up == killed || down == killed; ++fatal) {
        for (const int target : {three.latest(), 0}) {
            const int from = three.latest() - target;
            int& ended = target == 0 ? down : up;
            CAPTURE(target);
            CAPTURE(fatal);
            REQUIRE(fatal < 100);
            db->disconnect();
            if (ended == killed) {
                ended = status_of(in_child([&] {
                    int statement = 0;
                    const auto source = watched(db->source(), [&](std::string_view) {
                        if (++statement == fatal) ::raise(SIGKILL);
                    });
                    three.migrate(source, target);
                    return 0;
                }));
                if (ended == 0) CHECK(three.version(db->source()) == target);
                if (ended == killed && Database::speaks != dialect::mysql) {
                    // All or nothing.
                    CHECK(three_migrations::left_by(*db) == three_migrations::expected(from));
                }
            }
            three.migrate(db->source(), target);
            CHECK(three.version(db->source()) == target);
            CHECK(three_migrations::left_by(*db) == three_migrations::expected(target));
        }
    }
    CHECK(up == 0);
    CHECK(down == 0);
}

TEST_CASE("MariaDB: every statement of the library's migrations can be repeated") {
    const auto db = scratch_database::make(dialect::mysql);
    if (!db) return;
    const auto& known = rowlock::schema::library_catalog(dialect::mysql);
    const auto run_twice = [&](std::string_view script) {
        for (const auto& sql : rowlock::schema::split_statements(script, dialect::mysql)) {
            CAPTURE(sql);
            for (int time = 0; time < 2; ++time) CHECK_NOTHROW(db->run(sql));
        }
    };
    const auto sizes = [&] {
        std::string text;
        for (const auto& each : db->tables()) {
            text +=
                each + " " + std::string{db->run("select count(*) from " + each).text(0, 0)} + " ";
        }
        return text;
    };
    migrate(db->source());
    const auto once = sizes();
    migrate(db->source(), {}, 0);
    run_twice(known.record.up);
    for (const auto& step : known.numbered) {
        run_twice(step.up);
        run_twice(rowlock::schema::record_statement(step, dialect::mysql));
    }
    CHECK(sizes() == once);
    CHECK_NOTHROW(require_current(db->source()));
    for (int version = known.latest(); version > 0; --version) run_twice(known.at(version).down);
    run_twice(known.record.down);
    CHECK(db->tables().empty());
}

TEST_CASE_TEMPLATE("a migrator that fails before any of its statements keeps no lock", Database,
                   EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const three_migrations three{Database::speaks};
    bool failed = true;
    for (int fatal = 1; failed; ++fatal) {
        CAPTURE(fatal);
        REQUIRE(fatal < 100);
        int statement = 0;
        // The connection outlives the failure, like one of an application's pool.
        const std::shared_ptr<rowlock::sql::connection> kept{db->source().connect(soon())};
        const auto pool = contract::lending(kept);
        try {
            three.migrate(watched(pool,
                                  [&](std::string_view sql) {
                                      const bool cleanup =
                                          sql == "rollback" || contains(sql, "release_lock(");
                                      if (++statement == fatal && !cleanup)
                                          throw error{errc::out_of_resources, "by the test"};
                                  }),
                          three.latest());
            failed = false;
        } catch (const error& failure) {
            REQUIRE(failure.kind() == errc::out_of_resources);
        }
        REQUIRE_NOTHROW(three.migrate(db->source(), three.latest()));
        CHECK(three_migrations::left_by(*db) == three_migrations::expected(three.latest()));
        three.migrate(db->source(), 0);
    }
}

TEST_CASE_TEMPLATE("a history is recorded after a migration, also of a table that that made anew",
                   Database, EVERY_DATABASE) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const std::string anew =
        "drop table rowlock_ticket;\n"
        "create table rowlock_ticket (ticket integer, name varchar(9), session integer, "
        "grant_id integer, kind integer, weight integer);\n";
    const longer_catalog newer{Database::speaks, anew, anew};
    const auto records = [&] {
        db->run("delete from rowlock_ticket");
        db->run("delete from rowlock_history");
        db->run(
            "insert into rowlock_ticket (ticket, name, session, grant_id, kind, weight) "
            "values (1, 'a', 1, 1, 0, 1)");
        return db->run("select count(*) from rowlock_history where kind = 'queued'").integer(0, 0);
    };
    migrate(db->source());
    rowlock::record_history(db->source(), true);
    REQUIRE(newer.migrate(db->source(), newer.latest()) == versions{after_latest});
    CHECK(records() == 1);
    REQUIRE(newer.migrate(db->source(), latest) == versions{after_latest});
    CHECK(records() == 1);
    CHECK(rowlock::history_status(db->source()) == rowlock::history_recording::on);
    rowlock::record_history(db->source(), false);
    REQUIRE(newer.migrate(db->source(), newer.latest()) == versions{after_latest});
    CHECK(records() == 0);  // one that was switched off stays so
    newer.migrate(db->source(), 0);
    CHECK(db->tables().empty());
}

TEST_CASE_TEMPLATE("the documented rights suffice for the library and for nothing else", Database,
                   postgresql, mariadb) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const bool is_postgresql = Database::speaks == dialect::postgresql;
    const table_names names{.schema = is_postgresql ? "place" : ""};
    migrate(db->source().with_tables(names));
    const scratch_role app{*db};
    for (const auto& sql :
         documented_grants(Database::speaks, is_postgresql ? "place" : db->name(), app.name())) {
        db->run(sql);
    }

    CHECK(migrate(app.source().with_tables(names)) == nothing);
    CHECK(schema_status(app.source().with_tables(names)).current());
    CHECK_NOTHROW(require_current(app.source().with_tables(names)));
    const auto connection = app.source().connect(soon());
    for (const auto& sql : accesses(Database::speaks, names)) {
        CAPTURE(sql);
        CHECK_NOTHROW(connection->query(sql, soon()));
    }

    for (const auto* sql : {"delete from rowlock_token_floor", "delete from rowlock_migration",
                            "delete from rowlock_version",
                            "update rowlock_migration set version = 2", "drop table rowlock_lock",
                            "insert into rowlock_token_floor select * from rowlock_token_floor",
                            "create table rowlock_more (a integer)"}) {
        CAPTURE(sql);
        const auto refused = rowlock::sql::qualify(sql, Database::speaks, names);
        CHECK(kind_of([&] { connection->query(refused, soon()); }) == errc::access_denied);
    }
    const auto advised = failure_of([&] { migrate(app.source().with_tables(names), {}, 0); });
    CHECK(advised.kind() == errc::access_denied);
    CHECK(contains(advised.what(), "run it as their owner, or give a DBA the output of"));
    CHECK_NOTHROW(require_current(app.source().with_tables(names)));

    // The error for a role without these rights names the place where they are listed.
    db->run(is_postgresql ? "revoke select on place.rowlock_migration from " + app.name()
                          : "revoke select on rowlock_migration from '" + app.name() + "'@'%'");
    const auto poor = failure_of([&] { require_current(app.source().with_tables(names)); });
    CHECK(poor.kind() == errc::access_denied);
    CHECK(contains(poor.what(), "docs/migrations.md"));
}

// shows: database-rights
TEST_CASE_TEMPLATE(
    "everything except migrating works with the documented rights, and with none of them missing",
    Database, postgresql, mariadb) {
    const auto db = scratch_database::make(Database::speaks);
    if (!db) return;
    const bool is_postgresql = Database::speaks == dialect::postgresql;
    const table_names names{.schema = is_postgresql ? "place" : ""};
    migrate(db->source().with_tables(names));
    const scratch_role app{*db};
    const auto place = is_postgresql ? "place"s : db->name();
    const auto grants = documented_grants(Database::speaks, place, app.name());
    for (const auto& sql : grants) db->run(sql);
    const auto clear = [&] {
        for (const auto* const each : {"session", "lock", "ticket", "version", "hold", "run",
                                       "barrier", "party", "policy", "quorum", "member"}) {
            db->run("delete from " + place + ".rowlock_" + each);
        }
    };
    use_everything(app.source().with_tables(names));
    clear();

    // One by one: "grant a, b on t, u to r" is four rights.
    static const std::regex parts{"grant ([a-z, ]+)\\s+on (schema )?([^ ][^]*?)\\s+to (.*)"};
    static const std::regex word{"[a-z]+"};
    static const std::regex table{"[^,\\s]+"};
    int rights = 0;
    for (const auto& sql : grants) {
        std::smatch found;
        REQUIRE(std::regex_match(sql, found, parts));
        const std::string whats = found[1];
        const std::string tables = found[3];
        for (std::sregex_iterator what{whats.begin(), whats.end(), word}, end; what != end;
             ++what) {
            for (std::sregex_iterator on{tables.begin(), tables.end(), table}; on != end; ++on) {
                const auto right = what->str() + " on " + found[2].str() + on->str();
                CAPTURE(right);
                db->run("revoke " + right + " from " + found[4].str());
                CHECK(kind_of([&] { use_everything(app.source().with_tables(names)); }) ==
                      errc::access_denied);
                db->run("grant " + right + " to " + found[4].str());
                clear();
                ++rights;
            }
        }
    }
    CHECK(rights >= 17);
    use_everything(app.source().with_tables(names));
}

TEST_CASE("MariaDB: a migration is recorded although connections start without autocommit") {
    const auto db = scratch_database::make(dialect::mysql);
    if (!db) return;
    const connection_source manual{dialect::mysql,
                                   [&](auto until) {
                                       auto made = db->source().connect(until);
                                       made->query("set session autocommit = 0", until);
                                       return made;
                                   },
                                   "without autocommit"};
    CHECK(migrate(manual) == all_up);
    CHECK_NOTHROW(require_current(db->source()));
    CHECK(db->run("select count(*) from rowlock_token_floor").integer(0, 0) == 1);
}

TEST_CASE("MariaDB: a name is compared byte by byte, up to 255 of them") {
    const auto db = scratch_database::make(dialect::mysql);
    if (!db) return;
    migrate(db->source());
    const auto add = [&](const std::string& name) {
        db->run("insert into rowlock_lock (name, token, changed_at) values ('" + name + "', 1, 1)");
    };
    const std::string composed = "j\xC3\xB6";
    const std::string decomposed = "jo\xCC\x88";
    for (const auto& name : {"job"s, "Job"s, "job "s, composed, decomposed}) {
        CAPTURE(name);
        CHECK_NOTHROW(add(name));
    }
    CHECK_NOTHROW(add(std::string(255, 'x')));
    CHECK(kind_of([&] { add("job"); }) == errc::unique_violation);
    CHECK(db->run("select count(*) from rowlock_lock").integer(0, 0) == 6);
}

TEST_CASE("PostgreSQL: schemas share a database, one is made where it is missing") {
    const auto db = scratch_database::make(dialect::postgresql);
    if (!db) return;
    const table_names shop{.schema = "shop"};
    const table_names order{.schema = "order", .prefix = "x_"};
    CHECK(kind_of([&] { require_current(db->source().with_tables(shop)); }) ==
          errc::schema_outdated);
    CHECK(schema_status(db->source().with_tables(shop)).version == 0);
    CHECK(migrate(db->source().with_tables(shop), {}, 0) == nothing);
    CHECK(db->run("select 1 from pg_namespace where nspname = 'shop'").empty());
    CHECK(migrate(db->source().with_tables(shop)) == all_up);
    CHECK(migrate(db->source().with_tables(order)) == all_up);
    CHECK(db->run("select floor from shop.rowlock_token_floor").rows() == 1);
    CHECK(db->run("select floor from \"order\".x_token_floor").rows() == 1);
    CHECK(schema_status(db->source()).version == 0);
    CHECK(migrate(db->source().with_tables(order), {}, 0) == all_down);
    CHECK_NOTHROW(require_current(db->source().with_tables(shop)));
    CHECK(db->run("select 1 from pg_namespace where nspname = 'order'").rows() == 1);
}

TEST_CASE("PostgreSQL: eight migrators with different prefixes make one new schema") {
    const auto db = scratch_database::make(dialect::postgresql);
    if (!db) return;
    std::barrier start{8};
    std::atomic<int> applied{0};
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            start.arrive_and_wait();
            try {
                migrate(db->source().with_tables(
                    {.schema = "shared", .prefix = std::string(1, static_cast<char>('a' + i))}));
                ++applied;
            } catch (const std::exception& failure) {
                MESSAGE(std::string{failure.what()});
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(applied == 8);
    for (char prefix = 'a'; prefix < 'i'; ++prefix) {
        CAPTURE(prefix);
        const table_names tables{.schema = "shared", .prefix = std::string(1, prefix)};
        CHECK(db->tables(tables.prefix) == all_tables(tables.prefix));
        CHECK_NOTHROW(require_current(db->source().with_tables(tables)));
        CHECK(db->run("select version from shared." + tables.prefix + "migration").rows() ==
              all_up.size());
        CHECK(db->run("select floor from shared." + tables.prefix + "token_floor").rows() == 1);
    }
    CHECK(db->run("select 1 from pg_tables where schemaname = 'shared'").rows() ==
          8 * all_tables().size());
}

TEST_CASE(
    "PostgreSQL: new tables go to the schema of the existing ones, not the first of the search "
    "path") {
    const auto db = scratch_database::make(dialect::postgresql);
    if (!db) return;
    const auto with_path = [&](const std::string& path) {
        return connection_source{dialect::postgresql,
                                 [&db, path](auto until) {
                                     auto made = db->source().connect(until);
                                     made->query("set search_path = " + path, until);
                                     return made;
                                 },
                                 "with a search path"};
    };
    migrate(db->source());
    db->run("create schema \"Own's\"");
    const longer_catalog newer{dialect::postgresql, "create table rowlock_extra (a integer);\n",
                               "drop table rowlock_extra;\n"};
    CHECK(newer.migrate(with_path("\"Own's\", public"), newer.latest()) == versions{after_latest});
    CHECK(
        db->run("select schemaname from pg_tables where tablename = 'rowlock_extra'").text(0, 0) ==
        "public");
    CHECK(newer.migrate(with_path("\"Own's\", public"), 0) == (versions{2, 1}));
    CHECK(db->tables().empty());
    CHECK(migrate(with_path("\"Own's\", public")) == all_up);
    CHECK(db->run("select schemaname from pg_tables where tablename = 'rowlock_lock'").text(0, 0) ==
          "Own's");
    CHECK(kind_of([&] { migrate(with_path("nowhere")); }) == errc::invalid_options);
}

TEST_CASE("PostgreSQL: the hot tables have no check, which each statement would pay for") {
    const auto db = scratch_database::make(dialect::postgresql);
    if (!db) return;
    migrate(db->source());
    CHECK(db->run("select conname from pg_constraint where contype = 'c' and conrelid = any (array["
                  "'rowlock_lock', 'rowlock_session', 'rowlock_hold', "
                  "'rowlock_ticket']::regclass[])")
              .rows() == 0);
}

TEST_CASE(
    "PostgreSQL: heartbeats and grants update rows in their pages, without touching an index") {
    const auto db = scratch_database::make(dialect::postgresql);
    if (!db) return;
    if (db->run("select current_setting('server_version_num')").integer(0, 0) < 150000) {
        MESSAGE("skipped: PostgreSQL before 15 does not tell its statistics at once");
        return;
    }
    migrate(db->source());
    // An open write transaction in any database of the server prevents the removal of old rows, and
    // other tests have such transactions. Between them it must work.
    std::int64_t hot = 0;
    const auto updated_in_their_pages = [&] {
        const auto count = [&](const char* column) {
            db->run("select pg_stat_force_next_flush()");
            return db
                ->run(std::string{"select sum("} + column +
                      ") from pg_stat_user_tables "
                      "where relname in ('rowlock_session', 'rowlock_lock')")
                .integer(0, 0);
        };
        db->run("truncate rowlock_session, rowlock_lock");  // pages without any old rows
        db->run(
            "insert into rowlock_session (id, owner, host, pid, program, ttl_us, expires_at, "
            "opened_at) select i, 'o', 'host.example', 1, 'program', 1, now(), now() "
            "from generate_series(1, 500) i");
        db->run(
            "insert into rowlock_lock (name, token, changed_at) select 'name/' || i, 0, now() "
            "from generate_series(1, 500) i");
        const auto all_before = count("n_tup_upd");
        const auto before = count("n_tup_hot_upd");
        for (int round = 0; round < 5; ++round) {
            db->run("update rowlock_session set beats = beats + 1, expires_at = clock_timestamp()");
            db->run(
                "update rowlock_lock set token = token + 1, session = 1, grant_id = token, "
                "note = 'a note', changed_at = clock_timestamp()");
        }
        CHECK(count("n_tup_upd") - all_before == 5000);
        hot = count("n_tup_hot_upd") - before;
        return hot >= 4500;  // 371 with the default fillfactor
    };
    CHECK_MESSAGE(support::eventually(updated_in_their_pages), hot);
}
