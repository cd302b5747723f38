// F43: an outage much longer than a ttl, and a restarted server after it.

#include "fault/frame.hpp"
#include "support/failure.hpp"
#include "support/own_server.hpp"
#include "support/queues.hpp"
#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using support::own_server;
using support::server;
using support::soon;
using steady = std::chrono::steady_clock;

constexpr milliseconds ttl = 2s;
constexpr milliseconds outage = 5 * ttl;
/// The delay of a waiter after the outage: a pause between two rounds of retries, and a poll.
constexpr milliseconds poll = 1s;
constexpr milliseconds bound = 2s + ttl + poll;

constexpr std::array endings{&own_server::stop, &own_server::crash, &own_server::kill};

std::int64_t count(const own_server& at, const std::string& query) {
    return rowlock::open(at.url()).connect(soon())->query(query, soon()).integer(0, 0);
}

bool stand_in_line(const own_server& at, std::int64_t many) {
    return support::eventually([&] {
        return count(at,
                     "select count(*) from rowlock_ticket w join rowlock_session s on s.id = "
                     "w.session where not s.ended") == many;
    });
}

/// Clients of the library: one holds, three wait for the same lock.
class library_crew {
public:
    library_crew(trial& in, own_server& at, rowlock::when_cut_off then)
        : in_{in}, then_{then}, holder_{rowlock::open(at.url()), options()} {
        held_.emplace(holder_.acquire("library"));
        for (int i = 0; i < waiters; ++i) {
            clients_.push_back(
                std::make_unique<rowlock::client>(rowlock::open(at.url()), options()));
            waiting_.push_back(std::async(std::launch::async, [this, i] { return wait(i); }));
        }
    }

    static constexpr int waiters = 3;

    void check_holder() {
        in_.must(!held_->held(), "a holder believes in its lease through the outage");
        in_.must(held_->lost().stop_requested(), "a holder did not learn of its loss");
    }
    void check_waiters(steady::time_point back) {
        for (auto& each : waiting_) {
            const auto granted = each.get();
            if (granted) in_.took(*granted - back, "until a waiter of the library was granted");
        }
        in_.must(overlaps_ == 0, "two waiters held one lock");
    }

private:
    [[nodiscard]] rowlock::client_options options() const {
        return {.ttl = ttl, .poll_interval = poll, .when_cut_off = then_};
    }
    std::optional<steady::time_point> wait(int i) {
        try {
            const auto lease =
                support::acquire_soon(*clients_.at(static_cast<std::size_t>(i)), "library");
            const auto granted = steady::now();
            if (inside_++ != 0) ++overlaps_;
            std::this_thread::sleep_for(10ms);
            --inside_;
            return granted;
        } catch (const rowlock::error& failure) {
            in_.violation(std::string{"a waiter with time left gave up: "} + failure.what());
            return std::nullopt;
        }
    }

    trial& in_;
    const rowlock::when_cut_off then_;
    rowlock::client holder_;
    std::optional<rowlock::lease> held_;
    std::vector<std::unique_ptr<rowlock::client>> clients_;
    std::vector<std::future<std::optional<steady::time_point>>> waiting_;
    std::atomic<int> inside_{0};
    std::atomic<int> overlaps_{0};
};

/// Processes of the tool: one holds, others wait, with and without a sufficient time limit.
class tool_crew {
public:
    explicit tool_crew(trial& in, const own_server& at) : in_{in}, at_{at} {
        holder_ = start(
            {"run", "--ttl", "2s", "tool", "--", "sh", "-c", "echo yes >started; exec sleep 1000"});
        if (!tool::eventually([&] { return tool::contents(folder_ / "started") == "yes\n"; })) {
            throw std::runtime_error{"the command does not start"};
        }
        patient_ = start({"run", "--ttl", "2s", "tool", "--", "echo", "ran"});
        hasty_ = start({"run", "--ttl", "2s", "--wait", "6s", "tool", "--", "echo", "ran"});
        scripted_ = start({"acquire", "--for", "1s", "--wait", "60s", "tool"});
    }

    static constexpr int waiters = 3;

    void check_during() {
        in_.must(holder_->wait() == 70, "a holder's exit code is not 70 (lost)");
        const int code = hasty_->wait();
        in_.must(code == 69 || code == 75,
                 "exit code " + std::to_string(code) + " of a waiter whose time was over");
        in_.must(hasty_->out().empty(), "a command ran without its lock");
        in_.must(!patient_->is_over(), "a waiter without a limit gave up: " + patient_->err());
        in_.must(!scripted_->is_over(), "`acquire --wait` gave up: " + scripted_->err());
    }
    void check_after() {
        in_.must(patient_->wait() == 0 && patient_->out() == "ran\n",
                 "a waiter without a limit was not granted the lock: " + patient_->err());
        in_.must(scripted_->wait() == 0, "`acquire --wait` was not granted the lock");
    }

private:
    [[nodiscard]] std::unique_ptr<tool::process> start(const tool::arguments& command) const {
        return std::make_unique<tool::process>(
            tool::command_line(command),
            tool::setting{.variables = {{"ROWLOCK_URL", at_.url()}}, .folder = folder_.path()});
    }

    trial& in_;
    const own_server& at_;
    const tool::scratch folder_;
    std::unique_ptr<tool::process> holder_, patient_, hasty_, scripted_;
};

void sit_out(trial& in, server which, rowlock::when_cut_off then) {
    const auto one = own_server::start(which);
    if (!one) return in.skip("the server's programs are missing");
    rowlock::migrate(rowlock::open(one->url()));
    const bool with_tool = then == rowlock::when_cut_off::requeue;
    for (int i = 0; i < in.rounds(); ++i) {
        library_crew library{in, *one, then};
        std::optional<tool_crew> tools;
        if (with_tool) tools.emplace(in, *one);
        const int waiters = library_crew::waiters + (with_tool ? tool_crew::waiters : 0);
        if (!stand_in_line(*one, waiters)) {
            throw fault::not_prepared{"the waiters are not queued"};
        }
        const auto from = steady::now();
        (one.get()->*endings.at(static_cast<std::size_t>(i) % endings.size()))();
        std::this_thread::sleep_until(from + outage);
        library.check_holder();
        if (tools) tools->check_during();
        one->start_again();
        library.check_waiters(steady::now());
        if (tools) tools->check_after();
        in.made();
    }
}

const bool registered = [] {
    for (const auto which : {server::postgresql, server::mariadb}) {
        const std::string name = which == server::postgresql ? "postgresql" : "mariadb";
        fault::rows().push_back(
            {.id = "F43/" + name,
             .what = "waiters and holders through an outage of five ttl and a restart",
             .quick_rounds = 1,
             .full_rounds = 9,
             .bound = bound,
             .run = [which](trial& in) { sit_out(in, which, rowlock::when_cut_off::requeue); },
             .control = [which](trial& in) { sit_out(in, which, rowlock::when_cut_off::fail); },
             .neighbours = fault::beside::few});
    }
    return true;
}();

}  // namespace
