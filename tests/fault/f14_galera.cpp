// F14: a Galera cluster, whose clients work on different nodes, one of which is cut off.

#include "fault/frame.hpp"
#include "fault/users.hpp"
#include "support/galera_node.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <map>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using stress::boot_time;

constexpr milliseconds ttl = 3s;
constexpr milliseconds poll = 500ms;
/// The time until the others take a silent node for gone (galera_cluster). No commit ends before.
constexpr milliseconds silence = 3s;
constexpr int nodes = 3;

/// A lock that is local to a node is granted by each of them.
void take_unprotected(trial& in, const support::galera_cluster& cluster) {
    int granted = 0;
    std::vector<std::unique_ptr<rowlock::sql::connection>> all;
    for (int node = 0; node < nodes; ++node) {
        all.push_back(rowlock::open(cluster.url(node)).connect(support::soon()));
        granted += static_cast<int>(
            all.back()->query("select get_lock('job', 0)", support::soon()).integer(0, 0));
    }
    if (granted > 1) in.unprotected("GET_LOCK granted on another node too", granted - 1);
}

void check(trial& in, fault::users& all) {
    all.stop();
    const auto past = all.past();
    in.violations(stress::overlapping_beliefs(past));
    in.violations(stress::token_regressions(past));
    const auto failures = all.failures();
    for (const auto& [words, each] : failures) {
        in.note(std::to_string(each.times) + " x " + words + ", first: " + each.first);
    }
    in.must(!failures.contains(rowlock::make_error_code(rowlock::errc::deadlock).message()),
            "a certification failure reached the caller");
    in.note(std::to_string(all.grants()) + " grants");
}

fault::users::settings on_all_nodes(const support::galera_cluster& cluster) {
    fault::users::settings how;
    for (int node = 0; node < nodes; ++node) {
        how.sources.push_back(rowlock::open(cluster.url_from(node)));
    }
    how.options = {.ttl = ttl, .poll_interval = poll, .statement_timeout = 2s};
    // The default ten attempts may all lose to other nodes if the machine is busy.
    how.options.retry.attempts = 100;
    how.options.retry.total = how.limit = 20s;
    how.names = 3;
    return how;
}

void work_on_three_nodes(trial& in) {
    const auto cluster = support::galera_cluster::start(nodes);
    if (!cluster) return in.skip("Galera is missing");
    rowlock::migrate(rowlock::open(cluster->url(0)));
    take_unprotected(in, *cluster);
    for (int i = 0; i < in.rounds(); ++i) {
        {
            fault::users all{on_all_nodes(*cluster)};
            if (!in.must(all.go_on(200, 90s), "the users do not go on")) return check(in, all);
            check(in, all);
        }
        {
            fault::users all{on_all_nodes(*cluster)};
            if (!in.must(all.go_on(50, 60s), "the users do not go on")) return check(in, all);
            const int cut = (i + 2) % nodes;
            cluster->isolate(cut);
            const auto from = boot_time();
            in.must(all.go_on(50, 60s), "the users do not go on beside a node that was cut off");
            in.took(std::chrono::microseconds{all.first_since(from) - from},
                    "until a grant by the nodes that were left");
            cluster->rejoin(cut);
            in.must(all.go_on(50, 60s), "the users do not go on with the node that came back");
            check(in, all);
        }
        in.made();
    }
}

const fault::registered f14{{.id = "F14/mariadb",
                             .what = "three Galera nodes, clients on each, one is cut off",
                             .quick_rounds = 1,
                             .full_rounds = 20,
                             .bound = silence + ttl + poll,
                             .run = work_on_three_nodes,
                             .control_inside = true,
                             .neighbours = fault::beside::none}};

}  // namespace
