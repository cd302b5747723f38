// Many `rowlock run` on a server with few connections, and waiting through an outage.

#include "support/own_server.hpp"
#include "support/processlist.hpp"
#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using support::own_server;
using support::server;
using support::soon;

/// An application's database user with a limited number of connections.
class application {
public:
    explicit application(own_server& at) : admin_{rowlock::open(at.url()).connect(soon())} {
        const tool::setting as_admin{.variables = {{"ROWLOCK_URL", at.url()}}};
        REQUIRE(tool::rowlock({"migrate"}, as_admin).code == 0);
        url_ = at.url();
        const auto user = url_.find("//") + 2;
        url_.replace(user, url_.find('@') - user, "app:sesame");
        if (is_postgresql()) {
            run("create role app login password 'sesame'");
            run("grant select, insert, update, delete on all tables in schema public to app");
        } else {
            run("create user app@'%' identified by 'sesame'");
            run("grant select, insert, update, delete on " + url_.substr(url_.rfind('/') + 1) +
                ".* to app@'%'");
        }
    }
    void limit_connections(int most) {
        run(is_postgresql()
                ? "alter role app connection limit " + std::to_string(most)
                : "alter user app@'%' with max_user_connections " + std::to_string(most));
    }
    [[nodiscard]] std::int64_t connections() {
        if (is_postgresql()) {
            return number("select count(*) from pg_stat_activity where usename = 'app'");
        }
        return std::ssize(
            support::processes(*admin_, [](const auto& one) { return one.user == "app"; }));
    }
    [[nodiscard]] std::int64_t number(const std::string& query) {
        return admin_->query(query, soon()).integer(0, 0);
    }
    /// Whether the user can open another connection.
    [[nodiscard]] bool gets_in() const {
        try {
            return rowlock::open(url_).connect(soon())->alive();
        } catch (const rowlock::error&) {
            return false;
        }
    }
    [[nodiscard]] tool::setting environment(std::string folder) const {
        return {.variables = {{"ROWLOCK_URL", url_}}, .folder = std::move(folder)};
    }

private:
    [[nodiscard]] bool is_postgresql() const { return url_.starts_with("postgresql:"); }
    void run(const std::string& text) { admin_->query(text, soon()); }

    std::unique_ptr<rowlock::sql::connection> admin_;
    std::string url_;
};

using processes = std::vector<std::unique_ptr<tool::process>>;

/// Starts `each` runs of each of `locks` locks. Their commands go on once the file "go" exists.
processes start_runs(const application& app, const std::string& folder, int locks, int each) {
    const char* const script =
        "mkdir cs-$ROWLOCK_NAME || echo OVERLAP; until [ -e go ]; do sleep 0.05; done; "
        "rmdir cs-$ROWLOCK_NAME; printf x >>done-$ROWLOCK_NAME";
    processes all;
    for (int i = 0; i < each; ++i) {
        for (int lock = 0; lock < locks; ++lock) {
            all.push_back(std::make_unique<tool::process>(
                tool::command_line(
                    {"run", "lock-" + std::to_string(lock), "--", "sh", "-c", script}),
                app.environment(folder)));
        }
    }
    return all;
}

/// Waits until all have ended, and checks that each ran alone.
void finish(processes& all, const tool::scratch& folder, int locks, std::size_t each) {
    std::ofstream{folder / "go"} << "now";
    for (auto& one : all) {
        const int code = one->wait(120s);
        CAPTURE(one->err());
        CHECK(code == 0);
        CHECK(one->out() == "");
    }
    for (int lock = 0; lock < locks; ++lock) {
        CHECK(tool::contents(folder / ("done-lock-" + std::to_string(lock))).size() == each);
    }
}

template <typename Action>
void on_servers(const support::own_server_settings& postgresql, Action action,
                const std::vector<server>& servers = {server::postgresql, server::mariadb}) {
    for (const auto which : servers) {
        const std::string name = which == server::postgresql ? "PostgreSQL" : "MariaDB";
        CAPTURE(name);
        if (const auto at = own_server::start(
                which, which == server::postgresql ? postgresql : support::own_server_settings{})) {
            application app{*at};
            action(*at, app, which);
        }
    }
}

}  // namespace

TEST_CASE(
    "holders and waiters of `rowlock run` use one connection each, and leave room for others") {
    constexpr int locks = 4;
    constexpr int each = 4;
    // Three of the connections are reserved for superusers.
    on_servers({.arguments = {"-c", "max_connections=22"}},
               [&](own_server&, application& app, server) {
                   app.limit_connections(locks * each + 2);
                   const tool::scratch folder;
                   auto all = start_runs(app, folder.path(), locks, each);
                   CHECK(tool::eventually([&] {
                       return app.number("select count(*) from rowlock_ticket") ==
                              std::int64_t{locks} * (each - 1);
                   }));
                   // Allows time for what follows the enqueue: heartbeats, listeners, wait threads.
                   // A client opens another one beside one that stalls.
                   const auto most_of_a_while = [&] {
                       std::int64_t most = 0;
                       const auto until = std::chrono::steady_clock::now() + 1s;
                       while (std::chrono::steady_clock::now() < until) {
                           most = std::max(most, app.connections());
                           std::this_thread::sleep_for(20ms);
                       }
                       return most;
                   };
                   const std::int64_t one_each = locks * each;
                   CHECK(support::at_best(one_each + 1, most_of_a_while) == one_each);
                   CHECK(app.gets_in());
                   finish(all, folder, locks, each);
                   for (auto& one : all) CHECK(one->err() == "");
               });
}

TEST_CASE("`rowlock run` waits for a connection where the server has none left, and says so") {
    constexpr int locks = 2;
    constexpr int each = 3;
    on_servers({}, [&](own_server&, application& app, server) {
        app.limit_connections(3);
        const tool::scratch folder;
        auto all = start_runs(app, folder.path(), locks, each);
        CHECK(tool::eventually([&] {
            return std::ranges::any_of(all, [](const auto& one) {
                return one->err().find("no connection left") != std::string::npos;
            });
        }));
        // A run with a shorter time limit reports the reason, which is not the lock.
        const auto hasty = tool::rowlock({"run", "--wait", "2s", "lock-0", "--", "true"},
                                         app.environment(folder.path()));
        CHECK(hasty.code == 69);
        CHECK(hasty.err.find("no connection left") != std::string::npos);
        finish(all, folder, locks, each);
    });
}

TEST_CASE(
    "in an outage the tool's waiters go on waiting, holders stop, and the exit codes are right") {
    // What the tool decides, on one server by default.
    std::vector<server> servers{support::mysql_alone() ? server::mariadb : server::postgresql};
    if (support::wanted_driver() == "every") servers = {server::postgresql, server::mariadb};
    on_servers(
        {},
        [&](own_server& at, application& app, server) {
            const tool::scratch folder;
            const auto with = app.environment(folder.path());
            const auto run = [&](tool::arguments more, const char* script) {
                tool::arguments command{"run"};
                command.insert(command.end(), more.begin(), more.end());
                command.insert(command.end(), {"a", "--", "sh", "-c", script});
                return std::make_unique<tool::process>(tool::command_line(command), with);
            };
            const auto holder = run({"--ttl", "9s"}, "echo yes >started; exec sleep 1000");
            REQUIRE(
                tool::eventually([&] { return tool::contents(folder / "started") == "yes\n"; }));
            const auto stand = [&](int count) {
                return tool::eventually(
                    [&] { return app.number("select count(*) from rowlock_ticket") == count; });
            };
            // The next ones take time to start, in which the earlier get the answers to their
            // statements. Without the answer to its enqueue the waiter would not know of an entry
            // that it could lose, and the script not whether it was served.
            const auto waiter = run({"--ttl", "6s"}, "echo ran");
            REQUIRE(stand(1));
            tool::process scripted{
                tool::command_line({"acquire", "--for", "1s", "--wait", "120s", "a"}), with};
            REQUIRE(stand(2));
            const auto hasty = run({"--ttl", "6s", "--wait", "16s"}, "echo ran");
            REQUIRE(stand(3));
            at.stop();
            const auto down = std::chrono::steady_clock::now();
            // Only the holder's exit code reports the loss.
            CHECK(holder->wait() == 70);
            CHECK(hasty->wait() == 69);
            CHECK(hasty->out() == "");
            // The waiters have lost their queue entries by now, and their retries are over: the
            // outage has lasted for longer than their ttl, and than ten seconds.
            std::this_thread::sleep_until(down + 11s);
            CHECK_FALSE(waiter->is_over());
            CHECK_FALSE(scripted.is_over());
            at.start_again();
            CHECK(waiter->wait() == 0);
            CHECK(waiter->out() == "ran\n");
            CHECK(waiter->err().find("the queue entry was lost") != std::string::npos);
            CHECK(scripted.wait() == 0);
        },
        servers);
}
