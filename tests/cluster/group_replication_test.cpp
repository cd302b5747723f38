// Groups of MySQL Group Replication: three members, with one primary and with three.

#include "sql/server_facts.hpp"
#include "support/failure.hpp"
#include "support/mysql_group.hpp"
#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::mysql_group;
using support::soon;

namespace {

/// The group that is shared by the cases which leave it intact. Without MySQL each case says so.
mysql_group* everywhere() {
    static std::unique_ptr<mysql_group> made;
    static const bool there = [] {
        made = mysql_group::start(mysql_group::primaries::all);
        if (!made) return false;
        migrate(open(made->url(0)));
        made->level(0);
        return true;
    }();
    if (!there) return nullptr;
    return made.get();
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const error& failure) {
        return failure.what();
    }
    return {};
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("the members of a group are one server, whose floor no session raises") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    std::string identity;
    for (int i = 0; i < mysql_group::size; ++i) {
        const auto db = open(group->url(i)).connect(soon());
        const auto& facts = sql::facts_of(*db, soon());
        CHECK(facts.member_of == sql::cluster::group);
        CHECK(facts.server.starts_with("group:"));
        if (identity.empty()) identity = facts.server;
        CHECK(facts.server == identity);
    }
    std::optional<fencing_token> last;
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < mysql_group::size; ++i) {
            client here{open(group->url(i)), {.ttl = 10s}};
            const auto held = here.try_acquire_for("in turn", 20s);
            REQUIRE(held);
            if (last) {
                CHECK(held->token() > *last);
                CHECK(held->token().value() < last->value() + 100);
            }
            last = held->token();
        }
    }
}

TEST_CASE(
    "a user needs the rights that `migrate --print-grants` prints, and the error names them") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    group->run(0, "create user app@'%' identified by 'one of the tests'");
    group->run(0, "grant all on rowlock.* to app@'%'");
    auto url = group->url(0);
    url.replace(url.find("rowlock:"), url.find('@') - url.find("rowlock:"),
                "app:one%20of%20the%20tests");
    client without{open(url)};
    CHECK(kind_of([&] { (void)without.try_acquire("by the application"); }) == errc::access_denied);
    CHECK(contains(message_of([&] { (void)without.try_acquire("by the application"); }),
                   "grant select on performance_schema.replication_group_members"));
    const auto printed = tool::rowlock({"migrate", "--print-grants", "app"},
                                       {.variables = {{"ROWLOCK_URL", group->url(0)}}});
    for (std::size_t at = 0; at < printed.out.size();) {
        const auto end = printed.out.find(";\n", at);
        if (end == std::string::npos) break;
        group->run(0, printed.out.substr(at, end - at));
        at = end + 2;
    }
    client with{open(url)};
    CHECK(with.try_acquire_for("by the application", 10s));
    // A member that its group expels turns offline mode on, which affects such users.
    group->run(0, "set global offline_mode = on");
    auto all = group->url_from(0);
    all.replace(all.find("rowlock:"), all.find('@') - all.find("rowlock:"),
                "app:one%20of%20the%20tests");
    client past{open(all)};
    CHECK(past.try_acquire_for("by the application", 10s));
    CHECK(kind_of([&] { (void)client{open(url)}.try_acquire("by the application"); }) ==
          errc::database_unreachable);
    group->run(0, "set global offline_mode = off");
}

// shows: row-locks
TEST_CASE(
    "GET_LOCK and row locks are refused in a group; control: two members grant one GET_LOCK") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    const auto first = group->admin(0);
    const auto second = group->admin(1);
    CHECK(first->query("select get_lock('job', 0)", soon()).integer(0, 0) == 1);
    CHECK(second->query("select get_lock('job', 0)", soon()).integer(0, 0) == 1);

    const auto source = open(group->url(0));
    advisory_client locks{source};
    CHECK(contains(message_of([&] { (void)locks.try_lock("job"); }), "member of a MySQL group"));
    CHECK(kind_of([&] { (void)locks.try_lock("job"); }) == errc::unsupported);
    CHECK(kind_of([&] { const row_session refused{source}; }) == errc::unsupported);
    group->run(0, "create table if not exists rowlock.inventory (sku varchar(20) primary key)");
    group->run(0, "insert ignore into rowlock.inventory values ('A1')");
    const auto db = source.connect(soon());
    db->query("begin", soon());
    CHECK(contains(message_of([&] { (void)lock_row(*db, "inventory", {"sku"}, {"A1"}); }),
                   "accept_double_grants_in_cluster"));
    CHECK(lock_row(*db, "inventory", {"sku"}, {"A1"}, {.accept_double_grants_in_cluster = true}));
    db->query("rollback", soon());
}

namespace {

/// A holder's transaction on a member that has not applied the loss of its lease yet.
class stale_transaction {
public:
    explicit stale_transaction(const mysql_group& group)
        : group_{group},
          holder_{open(group.url(1)), {.ttl = 60s}},
          others_{open(group.url(2)), {.ttl = 60s}} {
        group.run(1, "create table if not exists rowlock.blocked (id int primary key)");
        group.run(1, "create table if not exists rowlock.stock (id int primary key, n int)");
        group.run(1, "delete from rowlock.blocked");
        group.run(1, "replace into rowlock.stock values (1, 10)");
        lease_ = holder_.try_acquire_for("stock", 20s);
        REQUIRE(lease_);
        group.level(1);
        // Blocks the applier of this member, and so all later transactions.
        blocker_ = group.admin(1);
        blocker_->query("lock tables rowlock.blocked write", soon());
        group.run(2, "insert into rowlock.blocked values (1)");
        REQUIRE(eventually([&] {
            try {
                return others_.force_release("stock");
            } catch (const error& failure) {
                if (!failure.retryable()) throw;
                return false;
            }
        }));
        taken_ = others_.try_acquire_for("stock", 20s);
        REQUIRE(taken_);
        CHECK(taken_->token() > lease_->token());
        app_ = open(group.url(1)).connect(soon());
        app_->query("set session transaction isolation level read committed", soon());
        app_->query("begin", soon());
    }

    [[nodiscard]] sql::connection& app() { return *app_; }
    [[nodiscard]] const lease& held() const { return *lease_; }
    void take_from_stock_and_commit() {
        app_->query("update stock set n = n - 1 where id = 1", soon());
        app_->query("commit", soon());
    }
    /// Lets the member catch up. Returns whether all members have that stock.
    [[nodiscard]] bool all_have_stock(int wanted) {
        blocker_->query("unlock tables", soon());
        return eventually([&] { return has_stock(1, wanted) && has_stock(2, wanted); }, 30s);
    }

private:
    [[nodiscard]] bool has_stock(int member, int wanted) const {
        const auto row = group_.run(member, "select n from rowlock.stock where id = 1");
        return !row.empty() && row.integer(0, 0) == wanted;
    }

    const mysql_group& group_;
    client holder_;
    client others_;
    std::optional<lease> lease_;
    std::optional<lease> taken_;
    std::unique_ptr<sql::connection> blocker_;
    std::unique_ptr<sql::connection> app_;
};

}  // namespace

// shows: fenced-transactions
TEST_CASE("a stale holder's fenced transaction is rolled back on a member that lags") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    stale_transaction stale{*group};
    // The member cannot know yet, so the fence passes and the commit fails.
    fence(stale.app(), stale.held());
    CHECK(kind_of([&] { stale.take_from_stock_and_commit(); }) == errc::conflict);
    CHECK(stale.all_have_stock(10));
}

// shows: fenced-transactions
TEST_CASE("control: behind a fence that only reads, a stale holder commits on a member that lags") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    stale_transaction stale{*group};
    const auto row =
        stale.app().query("select token from rowlock_lock where name = 'stock' for share", soon());
    CHECK(row.integer(0, 0) == stale.held().token().value());
    stale.take_from_stock_and_commit();
    CHECK(stale.all_have_stock(9));
}

// shows: mysql-groups
TEST_CASE("leases exclude across the members of a group, and no conflict reaches a waiter") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::atomic<int> grants{0};
    std::mutex mutex;
    std::vector<std::int64_t> tokens;
    std::vector<std::string> failures;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<client>> clients;
    for (int i = 0; i < mysql_group::size; ++i) {
        clients.push_back(std::make_unique<client>(
            open(group->url(i)), client_options{.ttl = 20s, .poll_interval = 100ms}));
    }
    for (int i = 0; i < 2 * mysql_group::size; ++i) {
        threads.emplace_back([&, i] {
            client& mine = *clients[static_cast<std::size_t>(i % mysql_group::size)];
            while (!stop) {
                try {
                    const auto held = mine.try_acquire_for("contended", 60s);
                    if (!held) continue;
                    overlaps += inside++ == 0 ? 0 : 1;
                    {
                        const std::lock_guard lock{mutex};
                        tokens.push_back(held->token().value());
                    }
                    --inside;
                    ++grants;
                } catch (const error& failure) {
                    const std::lock_guard lock{mutex};
                    failures.emplace_back(failure.what());
                }
            }
        });
    }
    CHECK(eventually([&] { return grants >= 120; }, 120s));
    stop = true;
    for (auto& each : threads) each.join();
    CHECK(overlaps == 0);
    CHECK(std::is_sorted(tokens.begin(), tokens.end()));
    CHECK(std::adjacent_find(tokens.begin(), tokens.end()) == tokens.end());
    for (const auto& each : failures) FAIL_CHECK(each);
    MESSAGE(grants.load(), " grants");
}

TEST_CASE("the doctor names the group, this member's role, and what follows") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    const auto got = tool::rowlock({"doctor"}, {.variables = {{"ROWLOCK_URL", group->url(0)}}});
    CAPTURE(got.out);
    CHECK(got.code == 0);
    CHECK(contains(got.out,
                   "a MySQL group with several primaries, 3 of 3 members online; this "
                   "one is a PRIMARY"));
    CHECK(contains(got.out, "ok    advisory locks  refused"));
    CHECK(contains(got.out, "ok    row locks       refused"));
    CHECK(contains(got.out, "write the lease's row"));
}

// shows: mysql-groups
TEST_CASE(
    "a holder whose member leaves the group learns of it in time, though the server writes on") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    client holder{open(group->url(1)), {.ttl = 6s}};
    client others{open(group->url(0)), {.ttl = 6s}};
    const auto held = holder.try_acquire_for("left", 20s);
    REQUIRE(held);
    group->run(1, "stop group_replication");
    group->run(1, "set global super_read_only = off");
    group->run(1, "set global read_only = off");
    // Control: by this server alone the session would live on.
    const auto admin = group->admin(1);
    admin->query("set session sql_log_bin = 0", soon());
    const std::string session = to_string(held->session_id());
    CHECK(admin
              ->query("update rowlock.rowlock_session set beats = beats + 1 where ended = 0 and "
                      "id = " +
                          session,
                      soon())
              .affected() == 1);
    std::optional<lease> next;
    bool overlapped = false;
    REQUIRE(eventually(
        [&] {
            next = others.try_acquire("left");
            overlapped = next && held->held();
            return next.has_value();
        },
        30s));
    CHECK_FALSE(overlapped);
    CHECK(next->token() > held->token());
    // Nor through a connection that the client has kept.
    const auto again = message_of([&] { (void)holder.try_acquire("left"); });
    CHECK_MESSAGE(contains(again, "OFFLINE"), again);
    client late{open(group->url(1))};
    const auto refused = message_of([&] { (void)late.try_acquire("left"); });
    CHECK_MESSAGE(contains(refused, "OFFLINE"), refused);
    const auto examined =
        tool::rowlock({"doctor"}, {.variables = {{"ROWLOCK_URL", group->url(1)}}});
    CHECK_MESSAGE(contains(examined.out, "fail  cluster"), examined.out);
    CHECK(examined.code == 1);
    // It has no transactions that the group lacks, so the group accepts it again.
    next.reset();
    group->join(1);
    client back{open(group->url(1))};
    CHECK(back.try_acquire_for("left", 20s));
}

// shows: mysql-groups
TEST_CASE(
    "a holder whose member the group expels learns of it in time, and is granted nothing there") {
    auto* const group = everywhere();
    if (group == nullptr) return;
    client holder{open(group->url(1)), {.ttl = 6s, .statement_timeout = 1s}};
    client others{open(group->url(0)), {.ttl = 6s}};
    const auto held = holder.try_acquire_for("expelled", 20s);
    REQUIRE(held);
    std::optional<lease> next;
    bool overlapped = false;
    {
        group->freeze(1);
        const std::shared_ptr<void> thaw{nullptr, [&](void*) { group->thaw(1); }};
        REQUIRE(eventually(
            [&] {
                try {
                    next = others.try_acquire("expelled");
                } catch (const error& failure) {
                    // A commit during the change of membership.
                    if (!failure.retryable() && failure.kind() != errc::outcome_unknown) throw;
                }
                overlapped = next && held->held();
                return next.has_value();
            },
            60s));
        REQUIRE(eventually(
            [&] {
                return group->run(0, "select 1 from performance_schema.replication_group_members")
                           .rows() == mysql_group::size - 1;
            },
            60s));
    }
    CHECK_FALSE(overlapped);
    CHECK(next->token() > held->token());
    // After the thaw it first runs the statements sent meanwhile, then learns that it was expelled.
    REQUIRE(eventually(
        [&] {
            return group
                       ->run(1,
                             "select 1 from performance_schema.replication_group_members where "
                             "member_id = @@server_uuid and member_state = 'ERROR'")
                       .rows() == 1;
        },
        60s));
    CHECK_FALSE(held->held());
    CHECK(next->held());
    const auto refused = message_of([&] { (void)holder.try_acquire("expelled"); });
    CHECK_MESSAGE(contains(refused, "ERROR"), refused);
    client late{open(group->url(1))};
    const auto again = message_of([&] { (void)late.try_acquire("expelled"); });
    CHECK_MESSAGE(contains(again, "ERROR"), again);
    next.reset();
    group->run(1, "stop group_replication");
    group->run(1, "set global offline_mode = off");
    group->join(1);
    client back{open(group->url(1))};
    CHECK(back.try_acquire_for("expelled", 20s));
}

// shows: mysql-groups
TEST_CASE("a lease outlives its primary, and no other is granted meanwhile") {
    const auto group = mysql_group::start(mysql_group::primaries::one);
    if (!group) return;
    const int first = group->primary();
    REQUIRE(first == 0);
    // Of several hosts the one that accepts writes is chosen.
    migrate(open(group->url_from(1)));
    client holder{open(group->url_from(0)), {.ttl = 30s, .statement_timeout = 3s}};
    client others{open(group->url_from(2)), {.ttl = 30s, .statement_timeout = 3s}};
    const auto held = holder.try_acquire_for("job", 20s);
    REQUIRE(held);
    const auto stays_ours = [&] {
        // Two periods of heartbeats, so that the new primary has answered at least one.
        const auto beats = holder.stats().heartbeats;
        int refused = 0;
        const bool stays = eventually(
            [&] {
                try {
                    if (others.try_acquire("job")) FAIL_CHECK("granted beside its holder");
                    ++refused;
                } catch (const error& failure) {
                    CAPTURE(failure.what());
                    CHECK((failure.retryable() || failure.kind() == errc::outcome_unknown ||
                           failure.kind() == errc::read_only));
                }
                std::this_thread::sleep_for(50ms);
                return !held->held() || holder.stats().heartbeats >= beats + 2;
            },
            90s);
        return stays && refused > 0;
    };

    group->make_primary(1);
    CHECK(stays_ours());
    CHECK(held->held());

    group->kill(1);
    CHECK(stays_ours());
    CHECK(held->held());
    const int now_primary = group->primary();
    CHECK(now_primary != 1);

    // Started again without its group it would accept writes.
    group->start_alone(1);
    const auto admin = group->admin(1);
    admin->query("set session sql_log_bin = 0", soon());
    CHECK(admin
              ->query("update rowlock.rowlock_lock set note = 'by a server outside' where name = "
                      "'job'",
                      soon())
              .affected() == 1);
    client outside{open(group->url(1))};
    const auto refused = message_of([&] { (void)outside.try_acquire("job"); });
    CHECK_MESSAGE(contains(refused, "OFFLINE"), refused);
    // As the first of several hosts it is skipped.
    client past{open(group->url_from(1))};
    CHECK_FALSE(past.try_acquire("job"));
    CHECK(held->held());
    admin->query("update rowlock.rowlock_lock set note = null where name = 'job'", soon());
    group->join(1);

    // One of three members has no majority.
    for (int i = 0; i < mysql_group::size; ++i) {
        if (i != now_primary) group->kill(i);
    }
    REQUIRE(eventually([&] { return !held->held(); }, 60s));
    client alone{open(group->url(now_primary))};
    const auto why = message_of([&] { (void)alone.try_acquire("job"); });
    CHECK_MESSAGE(contains(why, "majority"), why);

    // The operator forces it to be the majority. It had applied everything.
    group->force(now_primary);
    std::optional<lease> forced;
    REQUIRE(eventually(
        [&] {
            try {
                forced = alone.try_acquire("job");
            } catch (const error& failure) {
                if (!failure.retryable() && failure.kind() != errc::outcome_unknown) throw;
            }
            return forced.has_value();
        },
        60s));
    constexpr std::int64_t jump = std::int64_t{1} << 32;
    CHECK(forced->token() > held->token());
    CHECK(forced->token().value() < held->token().value() + jump / 2);
    const auto forced_token = forced->token();
    forced.reset();

    // A new group, whose members need not know what the last ones had granted.
    group->kill(now_primary);
    for (int i = 0; i < mysql_group::size; ++i) group->start_alone(i);
    group->found(now_primary);
    client anew{open(group->url(now_primary))};
    std::optional<lease> next;
    REQUIRE(eventually(
        [&] {
            next = anew.try_acquire("job");
            return next.has_value();
        },
        60s));
    CHECK(next->token().value() > forced_token.value() + jump / 2);
    const auto last = next->token().value();
    next.reset();

    // Without its plugin the server is refused until the tables say that it is alone.
    group->kill(now_primary);
    group->start_without_plugin(now_primary);
    client single{open(group->url(now_primary))};
    const auto left = message_of([&] { (void)single.try_acquire("job"); });
    CHECK_MESSAGE(contains(left, "server_identity = 'alone'"), left);
    group->run(now_primary, "update rowlock.rowlock_token_floor set server_identity = 'alone'");
    const auto after = single.try_acquire_for("job", 60s);
    REQUIRE(after);
    CHECK(after->token().value() > last + jump / 2);
}
