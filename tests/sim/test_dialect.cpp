// The test dialect: SQLite's statements behind the traits of a server. What the library asks of its
// traits, and which ways there are to identify a server and to be woken, is redirected to here
// (seam_symbols.txt); and its statements have those of quorums and of LISTEN beside them, which it
// has for servers alone.

#include "test_dialect.hpp"

#include "base/embedded.hpp"
#include "lock/protocol/session/session_protocol.hpp"
#include "lock/wakeup/wakeup_source.hpp"
#include "scheduler.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::sim {
namespace {

/// As src/quorum/sql/postgresql.sql and so on, where they are explained: one
/// writer needs no locks of rows.
constexpr std::string_view statements = R"(
-- statement raise_quorum_token
insert into rowlock_quorum (name, token, changed_at)
select l.name, max(b.floor + ($6 is null), coalesce($6, 0)), {now}
  from rowlock_member b cross join rowlock_lock l cross join rowlock_session m
 where b.id = 1 and b.quorum = $4 and b.epoch = $5
   and l.name = $1 and l.session = $2 and l.grant_id = $3
   and m.id = l.session and b.ready_for <> '' and m.server_identity = b.ready_for and m.ttl_us <= b.max_ttl_us and {live}
on conflict (name) do update
   set token = max(rowlock_quorum.token + ($6 is null), excluded.token), changed_at = {now}
returning token

-- statement quorum_token
select token from rowlock_quorum where name = $1

-- statement seal_quorum_token
insert into rowlock_quorum (name, token, changed_at)
select $1, max($2, b.floor), {now} from rowlock_member b where b.id = 1 and b.quorum = $3
on conflict (name) do update set token = max(rowlock_quorum.token, excluded.token), changed_at = {now}

-- statement read_member
select quorum, epoch, members, ready_for, floor, max_ttl_us from rowlock_member where id = 1

-- statement found_member
insert into rowlock_member (id, quorum, epoch, members, ready_for, floor, max_ttl_us, changed_at)
values (1, $1, $2, $3, $4, $5, $6, {now})
on conflict (id) do update
   set epoch = excluded.epoch, members = excluded.members, ready_for = excluded.ready_for,
       floor = max(rowlock_member.floor, excluded.floor),
       max_ttl_us = max(rowlock_member.max_ttl_us, excluded.max_ttl_us), changed_at = {now}
 where rowlock_member.quorum = excluded.quorum and rowlock_member.epoch <= excluded.epoch

-- statement raise_quorum_epoch
update rowlock_member set epoch = $2, members = $3, changed_at = {now}
 where id = 1 and quorum = $1 and epoch < $2

-- statement quorum_leases
select l.name, l.token from rowlock_quorum q cross join rowlock_lock l where l.name = q.name and l.session is not null

-- statement greatest_quorum_token
select max(b.floor, coalesce((select max(q.token) from rowlock_quorum q), 0)) from rowlock_member b where b.id = 1

-- statement lock_all
select l.name, l.token, l.session, l.grant_id from rowlock_lock l
 where l.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)

-- statement before_listen
select 0, 0 * coalesce($1, $2, 0), 1, 1

-- statement running_processes
select 1 where $1 is null

-- statement server_identity
select sim_server_identity()

-- statement open_session_on_server
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, server_identity, expires_at, opened_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now} + $6, {now}
  from rowlock_token_floor f where f.id = 1 and f.server_identity = $10

-- statement meet_server
update rowlock_token_floor
   set floor = case server_identity when '' then floor else floor + 4294967296 end, raised_at = {now},
       server_identity = $1
 where id = 1 and server_identity <> $1
)";

/// SQLite's, on a server that has an identity: a session is opened on it.
class server_sessions final : public protocol::session_protocol {
public:
    explicit server_sessions(const sql::statement_set& of)
        : session_protocol{of},
          identity_{of("server_identity")},
          open_on_server_{of("open_session_on_server")},
          meet_{of("meet_server")} {}

    void set_up(sql::connection& /*db*/, std::chrono::milliseconds /*statement_timeout*/,
                sql::deadline /*until*/) const override {}

    [[nodiscard]] std::optional<std::string> server_of_again(sql::connection& db,
                                                             sql::deadline until) const override {
        return sql::memory_of(db).server = std::string{run(db, identity_, until).text(0, 0)};
    }

    std::string open(sql::connection& db, const protocol::session_row& row,
                     sql::deadline until) const override {
        const auto server = server_of_again(db, until).value();
        for (int made = 0; made < 2; ++made) {
            const auto opened =
                run(db, open_on_server_, until, row.id, row.owner, row.host, row.pid, row.program,
                    row.ttl.count(), row.wake.number, row.wake.secret, row.wake.mailbox, server);
            if (sql::changed_one(opened)) return server;
            run(db, meet_, until, server);
        }
        throw error{errc::database_error, "sim: the server is not met"};
    }

private:
    const sql::statement identity_, open_on_server_, meet_;
};

std::optional<sql::database_traits> changed;

}  // namespace
}  // namespace rowlock::sim

using namespace rowlock;

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names
extern "C" {

// sql::traits_of
const sql::database_traits& __real__ZN7rowlock3sql9traits_ofENS0_7dialectE(
    sql::dialect which) noexcept;
const sql::database_traits& __wrap__ZN7rowlock3sql9traits_ofENS0_7dialectE(
    sql::dialect which) noexcept {
    if (which == sql::dialect::sqlite && sim::changed) return *sim::changed;
    return __real__ZN7rowlock3sql9traits_ofENS0_7dialectE(which);
}

// embedded::statement_files
std::span<const embedded::file> __real__ZN7rowlock8embedded15statement_filesEv() noexcept;
std::span<const embedded::file> __wrap__ZN7rowlock8embedded15statement_filesEv() noexcept {
    static const std::vector<embedded::file> all = [] {
        const auto of_library = __real__ZN7rowlock8embedded15statement_filesEv();
        std::vector<embedded::file> more{of_library.begin(), of_library.end()};
        more.push_back({"tests/sim/sqlite.sql", sim::statements});
        return more;
    }();
    return all;
}

// sql::statement_set::operator(): each client of a process would compose the same texts again,
// which takes a fourth of the time of a seed.
sql::statement __real__ZNK7rowlock3sql13statement_setclESt17basic_string_viewIcSt11char_traitsIcEE(
    const sql::statement_set* of, std::string_view name);
sql::statement __wrap__ZNK7rowlock3sql13statement_setclESt17basic_string_viewIcSt11char_traitsIcEE(
    const sql::statement_set* of, std::string_view name) {
    static std::map<std::string, sql::statement, std::less<>> composed;
    const auto& options = of->options();
    const bool usual = of->speaks() == sql::dialect::sqlite && !options.testing_clock &&
                       options.tables == sql::table_names{};
    const auto compose = [&] {
        return __real__ZNK7rowlock3sql13statement_setclESt17basic_string_viewIcSt11char_traitsIcEE(
            of, name);
    };
    if (!usual) return compose();
    if (const auto found = composed.find(name); found != composed.end()) return found->second;
    // Nothing gives way meanwhile: a seed does the same whether it is the first to compose or not.
    auto* const world = sim::world;
    auto made = world != nullptr ? world->as(world->here(), compose) : compose();
    return composed.emplace(name, std::move(made)).first->second;
}

// protocol::make_session_protocol
std::unique_ptr<const protocol::session_protocol>
__real__ZN7rowlock8protocol21make_session_protocolERKNS_3sql13statement_setE(
    const sql::statement_set& of);
std::unique_ptr<const protocol::session_protocol>
__wrap__ZN7rowlock8protocol21make_session_protocolERKNS_3sql13statement_setE(
    const sql::statement_set& of) {
    if (sim::presented().has_server) return std::make_unique<const sim::server_sessions>(of);
    return __real__ZN7rowlock8protocol21make_session_protocolERKNS_3sql13statement_setE(of);
}

// wakeup::make_database_source: PostgreSQL's where the server notifies
std::unique_ptr<wakeup::wakeup_source>
__real__ZN7rowlock6wakeup20make_database_sourceENS_3sql7dialectENS0_12source_partsE(
    sql::dialect which, wakeup::source_parts with);
std::unique_ptr<wakeup::wakeup_source>
__wrap__ZN7rowlock6wakeup20make_database_sourceENS_3sql7dialectENS0_12source_partsE(
    sql::dialect which, wakeup::source_parts with) {
    const bool listens = which == sql::dialect::sqlite && sim::presented().notifies;
    return __real__ZN7rowlock6wakeup20make_database_sourceENS_3sql7dialectENS0_12source_partsE(
        listens ? sql::dialect::postgresql : which, std::move(with));
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace rowlock::sim {

sql::database_traits& presented() noexcept {
    if (!changed) {
        changed = __real__ZN7rowlock3sql9traits_ofENS0_7dialectE(sql::dialect::sqlite);
    }
    return *changed;
}

void present_sqlite() noexcept {
    changed.reset();
}

void present_server() noexcept {
    auto& of = presented();
    of.has_server = true;
    of.one_writer = false;
}

}  // namespace rowlock::sim
