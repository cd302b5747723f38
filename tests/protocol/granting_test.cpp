// No statement grants a lease to a session that is not live on this server. The test finds the
// statements by what they write. It fails for one that is missing from the table below, which says
// how to run each.

#include "base/ascii.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "sql/statements.hpp"
#include "support/lock_database.hpp"
#include "support/servers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using sql::value;
using support::soon;

namespace {

// --- which statements grant ----------------------------------------------------------------------

/// The text in lower case, with one blank for each run of them and around brackets, commas and
/// semicolons.
std::string in_words(std::string_view text) {
    std::string words;
    for (const char each : text) {
        const bool apart = each == '(' || each == ')' || each == ',' || each == ';';
        if (apart) words += ' ';
        words += std::isspace(static_cast<unsigned char>(each)) != 0 ? ' ' : ascii::to_lower(each);
        if (apart) words += ' ';
    }
    std::string once;
    for (const char each : words) {
        if (each != ' ' || !once.ends_with(' ')) once += each;
    }
    return once;
}

std::string trimmed(std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return std::string{text};
}

/// The items between commas up to the end of the list: the closing bracket, or one of `ends`.
std::vector<std::string> list_at(std::string_view text, const std::vector<std::string>& ends) {
    std::vector<std::string> parts(1);
    int depth = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto rest = text.substr(i);
        const bool ended = std::ranges::any_of(
            ends, [&](const auto& end) { return depth == 0 && rest.starts_with(end); });
        if (ended || text[i] == ';') break;
        if (text[i] == '(') ++depth;
        if (text[i] == ')' && --depth < 0) break;
        if (text[i] == ',' && depth == 0) {
            parts.emplace_back();
        } else {
            parts.back() += text[i];
        }
    }
    return parts;
}

bool sets_session(std::string_view assignments) {
    const auto all = list_at(assignments, {" where ", " from ", " returning "});
    return std::ranges::any_of(all, [](const auto& each) {
        const auto equals = each.find('=');
        return equals != std::string::npos && trimmed(each.substr(0, equals)) == "session" &&
               trimmed(each.substr(equals + 1)) != "null";
    });
}

bool inserts_session(std::string_view columns) {
    const auto all = list_at(columns, {});
    return std::ranges::any_of(all, [](const auto& each) { return trimmed(each) == "session"; });
}

/// Whether the statement writes a session into a row of rowlock_lock or rowlock_hold.
bool grants(std::string_view statement) {
    const std::string text = in_words(statement);
    const auto any = [&](std::string_view begin, std::string_view then, auto judge) {
        for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
            const auto list = text.find(then, at + begin.size());
            if (list != std::string::npos &&
                judge(std::string_view{text}.substr(list + then.size())))
                return true;
        }
        return false;
    };
    return any("update rowlock_lock", " set ", sets_session) ||
           any("insert into rowlock_lock", "(", inserts_session) ||
           any("insert into rowlock_hold ", "(", inserts_session);
}

std::set<std::string> granting_statements(sql::dialect speaks) {
    std::set<std::string> found;
    for (const auto& each : sql::written_statements(speaks)) {
        // They make a part of what the session has already: one_lock_test.cpp.
        if (each.name == "lower_lock" || each.name == "insert_lowered") continue;
        if (grants(sql::load_statement(speaks, each.name).text())) found.emplace(each.name);
    }
    return found;
}

// --- how to run them -----------------------------------------------------------------------------

constexpr session_id giver{1};
constexpr session_id taker{2};

enum class before : unsigned char {
    free,            ///< "job" was freed at token 7
    absent,          ///< no session has had it
    held,            ///< session 1 has it by grant 11 at token 7, and session 2 waits with grant 22
    left,            ///< freed at token 7, and session 2 waits with grant 22
    counted,         ///< "job" is a semaphore of five permits, and none is used
    permits_waited,  ///< and session 2 waits for one with grant 22
    shared,          ///< "job" is a shared_mutex that no client holds
    shared_waited,   ///< and session 2 waits for its shared mode with grant 22
};

using parameters = std::vector<value>;

/// Adds the parameter `count` times.
void add(parameters& to, const value& what, int count = 1) {
    for (int i = 0; i < count; ++i) to.push_back(what);
}

/// Adds sixteen parameters for each list.
parameters lists(parameters head, const std::vector<value>& each) {
    for (const auto& one : each) add(head, one, 16);
    return head;
}

struct way {
    before from;
    std::function<parameters(ticket_no ticket)> with;
};

const value none{};

/// For each statement that grants: the initial rows, and the parameters.
std::multimap<std::string, way> ways(sql::dialect speaks) {
    const auto same = [](parameters all) {
        return [all = std::move(all)](ticket_no) { return all; };
    };
    parameters reacquire{"job", taker, 22, none, none, none, 7};
    if (speaks == sql::dialect::mysql) add(reacquire, "");
    const parameters acquire{"job", taker, 22, none, none, none, 0};
    const parameters reclaim{"job", taker, giver, 7};
    const parameters adopt{"job", taker, giver, 7, 11, 22};
    std::multimap<std::string, way> all{
        {"reacquire", {before::free, same(reacquire)}},
        {"reclaim_lease", {before::held, same(reclaim)}},
        {"adopt_lease", {before::held, same(adopt)}},
    };
    if (speaks != sql::dialect::mysql) {
        all.insert({"acquire", {before::free, same(acquire)}});
        all.insert({"acquire", {before::absent, same(acquire)}});
    }
    if (speaks != sql::dialect::postgresql) {
        const parameters take{"job", taker, 22, none, none, none, 7, 8};
        for (const auto from : {before::free, before::held, before::left}) {
            all.insert({"take", {from, same(take)}});
        }
    }
    if (speaks == sql::dialect::mysql) {
        const parameters many = lists({taker, 0}, {"job", 7, 22, none, none, none});
        all.insert({"give_to_chosen", {before::held, same({"job"})}});
        all.insert({"take_all", {before::free, same(many)}});
        all.insert({"take_locked", {before::free, same(many)}});
        all.insert(
            {"insert_lease", {before::absent, same({"job", taker, 22, none, none, none, 1})}});
        all.insert({"insert_all",
                    {before::absent, same(lists({taker, 0, 1}, {"job", 22, none, none, none}))}});
    }
    const parameters permit{"job", taker, 22, 1, none, none, none};
    if (speaks == sql::dialect::postgresql) {
        auto take = permit;
        for (const int each : {1, 0}) add(take, each);
        all.insert({"take_permits", {before::counted, same(take)}});
        all.insert({"take_permits_together",
                    {before::counted,
                     same({"job", taker, 0, 0, "{22}", "{1}", "{null}", "{null}", "{null}"})}});
        all.insert({"grant_counted", {before::permits_waited, same({"job"})}});
    } else {
        auto insert = permit;
        add(insert, 0);
        all.insert({"insert_permit", {before::counted, same(insert)}});
    }
    if (speaks == sql::dialect::postgresql) {
        const parameters group{taker, "{job}", "{22}", "{null}", "{null}", "{null}"};
        all.insert({"acquire_all", {before::free, same(group)}});
        all.insert({"acquire_all", {before::absent, same(group)}});
        all.insert(
            {"reacquire_all",
             {before::free, same({taker, "{job}", "{7}", "{22}", "{null}", "{null}", "{null}"})}});
        all.insert({"grant_next", {before::left, same({"job", 0})}});
        const auto several = [&](const char* weight, int queued) {
            return same({taker, "{job}", "{22}", none, none, none, queued, 0, weight, "{1}", 0});
        };
        all.insert({"multi_take", {before::free, several("{null}", 0)}});
        all.insert({"multi_take", {before::left, several("{null}", 1)}});
        all.insert({"multi_take", {before::shared, several("{1}", 0)}});
        all.insert({"multi_take", {before::shared_waited, several("{1}", 1)}});
        all.insert({"hand_over", {before::held, same({"job", giver, 11, 0, 0})}});
        all.insert({"hand_over_to", {before::held, [](ticket_no ticket) {
                                         return parameters{"job", giver, 11,   ticket, taker,
                                                           22,    none,  none, none,   0,
                                                           none,  none,  0,    none,   none};
                                     }}});
    }
    return all;
}

// --- running them --------------------------------------------------------------------------------

/// The state of the session that is to get the lease.
enum class state : unsigned char { alive, ended, expired, elsewhere };

std::string to_string(state which) {
    constexpr std::array names{"alive", "ended", "expired", "elsewhere"};
    return names.at(static_cast<std::size_t>(which));
}

/// Fresh rows for each statement.
class scene {
public:
    explicit scene(support::lock_database& in)
        : in_{in}, leases_{in.protocol()}, db_{in.connect()}, other_{in.connect()} {}

    void set(before from, state now) {
        for (const auto* table : {"ticket", "lock", "session", "hold"}) {
            in_.run(std::string{"delete from rowlock_"} + table);
        }
        for (const auto id : {giver, taker}) {
            leases_.sessions().open(*other_, {id, "owner", "host", "program", 1, 60s}, soon());
        }
        if (from == before::counted || from == before::permits_waited) {
            make_counter("5", from == before::permits_waited);
        } else if (from == before::shared || from == before::shared_waited) {
            make_counter("null", from == before::shared_waited);
        } else if (from != before::absent) {
            in_.write_late_grant("job", giver, grant_id{11});
        }
        if (from == before::free || from == before::left) {
            in_.run("update rowlock_lock set session = null, grant_id = null");
        }
        if (from == before::held || from == before::left) {
            in_.queue().enqueue(*other_, {"job", taker, grant_id{22}, "", "", std::nullopt},
                                soon());
            ticket_ = ticket_no{in_.number("select max(ticket) from rowlock_ticket")};
        }
        if (now == state::ended) leases_.sessions().end(*other_, taker, soon());
        if (now == state::expired) change_taker("expires_at = " + past());
        // Neither a timeline nor an existing server's number.
        if (now == state::elsewhere) change_taker("server_identity = 'elsewhere:FFFFFFFF'");
    }

    void run(const std::string& name, const way& how, state now = state::alive) {
        const auto what =
            sql::load_statement(in_.speaks(), name, {.tables = in_.source().tables()});
        auto with = how.with(ticket_);
        // As choose_next has, before the session came to that state.
        if (name == "give_to_chosen") {
            db_->query("select 7, " + to_string(ticket_) + " into @chosen_token, @chosen_ticket",
                       soon());
        }
        // The one statement to which the client names the session's server.
        const bool names_it = name == "reacquire" && in_.speaks() == sql::dialect::mysql;
        if (names_it && now == state::elsewhere) with.back() = value{"4711"};
        db_->execute(what, with, soon());
    }

    [[nodiscard]] bool granted() {
        return in_.number(
                   "select count(*) from rowlock_lock where session = 2 "
                   "and grant_id is not null and token > 0") +
                   in_.number("select count(*) from rowlock_hold where session = 2") ==
               1;
    }

    /// Lets what is held so far look old.
    void age() { in_.run("update rowlock_lock set acquired_at = " + past()); }
    /// Whether the grant says that it was acquired in the last hour.
    [[nodiscard]] bool acquired_lately() {
        const std::string lately =
            in_.speaks() == sql::dialect::postgresql ? "clock_timestamp() - interval '1 hour'"
            : in_.speaks() == sql::dialect::mysql    ? "(unix_timestamp() - 3600) * 1000000"
                                                     : "(strftime('%s', 'now') - 3600) * 1000000";
        return in_.number("select count(*) from rowlock_lock where session = 2 and acquired_at > " +
                          lately) +
                   in_.number(
                       "select count(*) from rowlock_hold where session = 2 and acquired_at > " +
                       lately) ==
               1;
    }

    /// Whether a heartbeat succeeds while the statement has run and is not committed.
    [[nodiscard]] bool beats() {
        return leases_.sessions().heartbeat(*other_, taker, 0,
                                            std::chrono::steady_clock::now() + 15s);
    }
    [[nodiscard]] sql::connection& db() { return *db_; }

private:
    void make_counter(const std::string& capacity, bool waited) {
        const std::string now =
            in_.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
        in_.run("insert into rowlock_lock (name, token, changed_at, capacity) values ('job', 0, " +
                now + ", " + capacity + ")");
        if (!waited) return;
        in_.run(
            "insert into rowlock_ticket (name, session, grant_id, weight, enqueued_at) "
            "values ('job', 2, 22, 1, " +
            now + ")");
    }
    void change_taker(const std::string& what) {
        in_.run("update rowlock_session set " + what + " where id = 2");
    }
    [[nodiscard]] std::string past() const {
        return in_.speaks() == sql::dialect::postgresql ? "clock_timestamp() - interval '2 hours'"
                                                        : "1";
    }

    support::lock_database& in_;
    const protocol::lease_protocol& leases_;
    std::unique_ptr<sql::connection> db_, other_;
    ticket_no ticket_{};
};

/// MySQL knows neither the RETURNING nor the SET STATEMENT of these.
bool is_sent(std::string_view name) {
    return !support::mysql_alone() ||
           (name != "insert_all" && name != "reacquire" && name != "take_all");
}

}  // namespace

TEST_CASE("statements that grant a lease are found by what they write") {
    CHECK(grants("update rowlock_lock set token = 1, session = $2 where name = $1"));
    CHECK(grants("with u as (update rowlock_lock as l set session = c.session from c) select 1"));
    CHECK(grants("update rowlock_lock l force index (primary)\n set a = f(b, c),session=$1;"));
    CHECK(grants("insert into rowlock_lock as l (name, token, session) select 1"));
    CHECK(grants("insert into rowlock_hold (name, session) select 1"));
    CHECK_FALSE(grants("insert into rowlock_ticket (name, session) select 1"));
    CHECK_FALSE(grants("update rowlock_lock set session = null where session = $1"));
    CHECK_FALSE(grants("update rowlock_lock set token = 1 where session = $1"));
    CHECK_FALSE(grants("insert into rowlock_lock (name, token) select 1, 2"));
    CHECK_FALSE(grants("update rowlock_ticket set session = $1"));
    for (const auto speaks :
         {sql::dialect::postgresql, sql::dialect::mysql, sql::dialect::sqlite}) {
        const auto found = granting_statements(speaks);
        CHECK(found.contains("reacquire"));
        CHECK_FALSE(found.contains("release"));
        CHECK_FALSE(found.contains("confirm_grant"));
    }
}

TEST_CASE("every statement that grants checks that the session is live on this server") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        scene at{database};
        const auto all = ways(database.speaks());
        std::set<std::string> known;
        for (const auto& [name, how] : all) known.insert(name);
        CHECK(known == granting_statements(database.speaks()));
        for (const auto& each : all) {
            const std::string& name = each.first;
            const auto& how = each.second;
            if (!is_sent(name)) continue;
            for (const auto now : {state::alive, state::ended, state::expired, state::elsewhere}) {
                // An SQLite file has no other server.
                if (now == state::elsewhere && database.speaks() == sql::dialect::sqlite) continue;
                INFO(name, ", from state ", static_cast<int>(how.from), ", a session that is ",
                     to_string(now));
                at.set(how.from, now);
                at.run(name, how, now);
                CHECK(at.granted() == (now == state::alive));
            }
        }
    }
}

TEST_CASE("no heartbeat waits for a statement that grants") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        scene at{database};
        for (const auto& each : ways(database.speaks())) {
            const std::string& name = each.first;
            const auto& how = each.second;
            if (!is_sent(name)) continue;
            CAPTURE(name);
            at.set(how.from, state::alive);
            at.db().query("begin", soon());
            at.run(name, how);
            CHECK(at.beats());
            at.db().query("commit", soon());
            CHECK(at.granted());
        }
    }
}

// Otherwise a policy (client::set_max_hold) would end a grant that has just begun.
// shows: promise-19
TEST_CASE("every statement that grants notes when, but an adoption keeps the time") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        scene at{database};
        for (const auto& each : ways(database.speaks())) {
            const std::string& name = each.first;
            const auto& how = each.second;
            if (!is_sent(name)) continue;
            INFO(name, ", from state ", static_cast<int>(how.from));
            at.set(how.from, state::alive);
            at.age();
            at.run(name, how);
            REQUIRE(at.granted());
            CHECK(at.acquired_lately() == (name != "adopt_lease"));
        }
    }
}
