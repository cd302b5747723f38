// F37: the database is unreachable until a lease is lost, and returns before its session expires.
// The holder has the whole margin to stop: here a command that ignores SIGTERM, under `rowlock
// run`.

#include "fault/frame.hpp"
#include "support/protocols.hpp"
#include "support/server_address.hpp"
#include "support/serving.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using support::tcp_relay;
using tool::command_line;
using tool::process;
using tool::scratch;
using steady = std::chrono::steady_clock;

constexpr milliseconds ttl = 5s;
constexpr milliseconds grace = ttl / 6;
/// Counted from the command's SIGTERM: its grace, the end of its lease, and a poll of the waiter.
constexpr milliseconds bound = grace + 2s;

/// How the database becomes unreachable.
enum class way : unsigned char { stall, swallow, refuse, cut, delay };
constexpr std::array ways{way::stall, way::swallow, way::refuse, way::cut, way::delay};

const char* to_string(way which) {
    switch (which) {
        case way::stall:
            return "everything is late";
        case way::swallow:
            return "answers are late";
        case way::refuse:
            return "connections are refused";
        case way::cut:
            return "everything is late and then cut";
        default:
            return "everything takes longer than the lease";
    }
}

void begin(tcp_relay& relay, way which) {
    using enum tcp_relay::direction;
    switch (which) {
        case way::stall:
        case way::cut:
            return relay.hold(both);
        case way::swallow:
            return relay.hold(answers);
        case way::refuse:
            relay.refuse(true);
            return relay.cut();
        default:
            return relay.delay(both, ttl / 2);
    }
}

void end(tcp_relay& relay, way which) {
    using enum tcp_relay::direction;
    if (which == way::cut) relay.cut();
    if (which == way::refuse) return relay.refuse(false);
    if (which == way::delay) return relay.delay(both, 0ms);
    relay.resume();
}

/// Checks, as soon as it has the lock, whether the former command lives.
constexpr const char* look =
    "s=$(sed -n 's/^State:.\\(.\\).*/\\1/p' /proc/$(cat pid)/status 2>/dev/null);"
    "case $s in ''|Z|X) ;; *) echo ALIVE;; esac; echo began";
/// Ignores SIGTERM, after recording that it came.
constexpr const char* stubborn =
    "trap 'echo told >told' TERM; trap '' INT HUP; echo $$ >pid; while :; do sleep 0.1; done";

/// Runs when the command has received SIGTERM.
using loss_action = std::function<void(const std::string& name)>;
using prepare_loss = std::function<loss_action(const tool::tables&)>;

/// A command under `rowlock run` behind a relay, and one that waits for the lock without the relay.
class pair_of_runs {
public:
    pair_of_runs(const tool::tables& in, support::server which, int number)
        : name_{"job-" + std::to_string(number)},
          address_{contract::address_of(which)},
          relay_{address_.port} {
        address_.host = "127.0.0.1";
        address_.port = relay_.port();
        tool::setting behind{.variables = {{"ROWLOCK_URL", address_.url()}},
                             .folder = folder_.path()};
        first_ = std::make_unique<process>(
            command_line(in({"run", "--ttl", std::to_string(ttl.count()) + "ms", name_, "--",
                             "bash", "-c", stubborn})),
            behind);
        await([&] { return !tool::contents(folder_ / "pid").empty(); }, "it does not start");
        next_ = std::make_unique<process>(
            command_line(in({"run", "--wait", "25s", name_, "--", "sh", "-c", look})),
            in.in_environment({.folder = folder_.path()}));
        await(
            [&] {
                std::this_thread::sleep_for(100ms);
                return in.run({"show", "--json", name_}).out.find("\"position\"") !=
                       std::string::npos;
            },
            "no waiter is queued");
    }

    /// `at_loss` runs when the command has received SIGTERM.
    void suffer(trial& in, way which, const loss_action& at_loss) {
        const std::string what = to_string(which);
        begin(relay_, which);
        await([&] { return !tool::contents(folder_ / "told").empty(); },
              what + ": the command got no signal to stop");
        const auto told = steady::now();
        end(relay_, which);
        at_loss(name_);
        await([&] { return next_->out().find("began") != std::string::npos; },
              what + ": the next command does not start");
        in.took(steady::now() - told, what + ", from SIGTERM until the next command began");
        in.must(next_->out().find("ALIVE") == std::string::npos, what + ": two commands at once");
        in.must(next_->wait() == 0, what + ": the next command failed");
        in.must(first_->wait() == 70, what + ": another exit code than 70");
    }

private:
    static void await(const std::function<bool()>& condition, const std::string& otherwise) {
        if (!tool::eventually(condition)) throw std::runtime_error{otherwise};
    }

    scratch folder_;
    std::string name_;
    contract::server_address address_;
    tcp_relay relay_;
    std::unique_ptr<process> first_, next_;
};

void lose(trial& in, support::server which, int rounds, const prepare_loss& prepare) {
    const auto tables = tool::server_tables(which);
    if (!tables) {
        in.skip("no server");
        return;
    }
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::future<void>> all;
        for (const auto how : ways) {
            const int number = round * static_cast<int>(ways.size()) + static_cast<int>(how);
            all.push_back(std::async(std::launch::async, [&, how, number] {
                pair_of_runs commands{*tables, which, number};
                commands.suffer(in, how, prepare(*tables));
            }));
        }
        for (auto& each : all) each.get();
        in.made();
    }
}

/// A client that does not wait for its holders: it ends its session when the database returns, and
/// serves the waiters.
class hasty_client {
public:
    explicit hasty_client(const tool::tables& in)
        : prefix_{in.prefix()},
          source_{rowlock::open(in.url()).with_tables({.prefix = prefix_})},
          protocols_{rowlock::sql::statement_set{source_.speaks(), {.tables = source_.tables()}}},
          db_{source_.connect(support::soon())} {
        protocols_.leases().sessions().set_up(*db_, 5s, support::soon());
    }
    void end_session(const std::string& name) const {
        const auto until = support::soon();
        const auto held = db_->query("select session from " + prefix_ + "lock where name = '" +
                                         name + "' and session is not null",
                                     until);
        if (held.empty()) return;
        protocols_.leases().sessions().end(*db_, held.integer<rowlock::session_id>(0, 0), until);
        const auto& queue = protocols_.queue();
        const auto next = support::serve_one(queue, *db_, name, until);
        if (next) queue.notify_grantee(*db_, *next, until);
    }

private:
    std::string prefix_;
    rowlock::sql::connection_source source_;
    support::protocols protocols_;
    std::unique_ptr<rowlock::sql::connection> db_;
};

loss_action hastily(const tool::tables& in) {
    return [client = std::make_shared<hasty_client>(in)](const std::string& name) {
        client->end_session(name);
    };
}

fault::row f37_on(const char* where, support::server which) {
    return {.id = std::string{"F37/"} + where,
            .what = "the database is away until a lease is lost; its command ignores SIGTERM",
            .quick_rounds = 1,
            .full_rounds = 100,
            .bound = bound,
            .run =
                [which](trial& in) {
                    lose(in, which, in.rounds(), [](const auto&) { return [](const auto&) {}; });
                },
            .control = [which](trial& in) { lose(in, which, std::min(in.rounds(), 5), hastily); }};
}

const fault::registered f37_postgresql{f37_on("postgresql", support::server::postgresql)};
const fault::registered f37_mariadb{f37_on("mariadb", support::server::mariadb)};

}  // namespace
