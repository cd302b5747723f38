#include "support/galera_node.hpp"

#include "support/lock_database.hpp"
#include "support/servers.hpp"
#include <rowlock/open.hpp>

#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace support {

using namespace std::chrono_literals;

namespace {

std::string find_provider() {
    std::vector<std::string> places{"/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so",
                                    "/usr/lib64/galera-4/libgalera_smm.so"};
    // The provider of the server that is started: scripts/fetch-server unpacks both.
    if (const char* folder = getenv("ROWLOCK_MARIADB_BIN")) {
        places = {std::string{folder} + "/../usr/lib/galera/libgalera_smm.so"};
    }
    for (const auto& path : places) {
        if (std::filesystem::exists(path)) return path;
    }
    return {};
}

/// `port` must differ from those of the cluster.
std::vector<std::string> command(const mariadb_home& home, std::uint16_t port) {
    auto words = home.command(port);
    const std::vector<std::string> cluster{
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--wsrep-on=ON",
        "--wsrep-provider=" + find_provider(),
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-cluster-name=rowlock",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-sst-method=rsync",
        "--wsrep-provider-options=gcache.size=1M;gmcast.listen_addr=tcp://127.0.0.1:" +
            std::to_string(free_port()) +
            ";ist.recv_addr=127.0.0.1:" + std::to_string(free_port())};
    words.insert(words.end(), cluster.begin(), cluster.end());
    return words;
}

/// The script by which a node that starts on a copy learns what it lacks: the donor's number, in a
/// file. The changes themselves come from the provider. Debian has the usual script in another
/// package.
constexpr std::string_view state_transfer = R"(#!/bin/sh
bypass=
while [ $# -gt 0 ]; do
    case $1 in
        --role) role=$2 ;;
        --address) address=$2 ;;
        --gtid) gtid=$2 ;;
        --bypass) bypass=1 ;;
    esac
    shift
done
here=$(dirname "$0")
if [ "$role" = joiner ]; then
    echo "ready 127.0.0.1:1/told.$$"
    until [ -s "$here/told.$$" ]; do sleep 0.05; done
    cat "$here/told.$$"
elif [ -n "$bypass" ]; then
    echo "$gtid" >"$here/new.$$"
    mv "$here/new.$$" "$here/${address##*/}"
    echo "done $gtid"
else
    exit 1
fi
)";

}  // namespace

std::unique_ptr<galera_node> galera_node::start() {
    if (find_provider().empty()) {
        miss_program("a Galera node", "mariadb-server-core mariadb-client-core galera-4");
        return nullptr;
    }
    std::unique_ptr<galera_node> made{new galera_node};
    made->home_ = mariadb_home::install();
    if (!made->home_) return nullptr;
    const auto& folder = made->home_->folder();
    for (int attempt = 0; attempt < 3; ++attempt) {
        const auto port = free_port();
        made->process_ = std::make_unique<server_process>(command(*made->home_, port), folder,
                                                          "galera.log", SIGTERM);
        made->url_ = made->home_->url(port);
        if (comes_up(*made->process_, made->url_,
                     {.query = "select variable_value from information_schema.global_status "
                               "where variable_name = 'wsrep_ready'",
                      .answer = "ON"},
                     std::chrono::seconds{60})) {
            return made;
        }
        made->process_.reset();  // before another has its data
    }
    throw std::runtime_error{"a Galera node did not start: " + folder.read("galera.log")};
}

std::unique_ptr<galera_cluster> galera_cluster::start(int nodes) {
    if (find_provider().empty()) {
        miss_program("a Galera node", "mariadb-server-core mariadb-client-core galera-4");
        return nullptr;
    }
    std::unique_ptr<galera_cluster> made{new galera_cluster};
    made->home_ = mariadb_home::install();
    if (!made->home_) return nullptr;
    const auto& home = made->home_->folder();
    home.write("wsrep_sst_copied", std::string{state_transfer});
    std::filesystem::permissions(home.path() + "/wsrep_sst_copied",
                                 std::filesystem::perms::owner_all);
    for (int attempt = 0; attempt < 3; ++attempt) {
        made->nodes_.clear();
        for (int i = 0; i < nodes; ++i) {
            made->nodes_.emplace_back().folder = std::make_unique<server_folder>();
        }
        if (made->run(true) && made->run(false)) return made;
    }
    std::string logs = made->home_->folder().read("galera.log");
    for (const auto& each : made->nodes_) {
        logs += each.folder->read("copy.log") + each.folder->read("galera.log");
    }
    throw std::runtime_error{"a Galera cluster did not start: " + logs};
}

const std::string& galera_cluster::url(int node) const {
    return nodes_.at(static_cast<std::size_t>(node)).url;
}

std::string galera_cluster::url_from(int node) const {
    auto all = url(node);
    for (int other = 0; other < size(); ++other) {
        if (other == node) continue;
        const auto port = nodes_.at(static_cast<std::size_t>(other)).port;
        all.insert(all.rfind('/'), ",127.0.0.1:" + std::to_string(port));
    }
    return all;
}

void galera_cluster::isolate(int node) {
    rowlock::open(url(node)).connect(soon())->query(
        "set global wsrep_provider_options = 'gmcast.isolate=1'", soon());
    const bool alone =
        eventually([&] { return status(node, "wsrep_cluster_status") == "non-Primary"; }, 30s);
    if (!alone) throw std::runtime_error{"a Galera node does not notice that it is alone"};
}

void galera_cluster::rejoin(int node) {
    rowlock::open(url(node)).connect(soon())->query(
        "set global wsrep_provider_options = 'gmcast.isolate=0'", soon());
    const bool back = eventually([&] { return status(node, "wsrep_ready") == "ON"; }, 60s);
    if (!back) throw std::runtime_error{"a Galera node does not come back to its cluster"};
}

/// The first node bootstraps the cluster and stops, so that its data can be copied. Then all start
/// with the same state, the first one first.
bool galera_cluster::run(bool first) {
    std::string peers;
    std::vector<std::uint16_t> ports;
    for (int i = 0; i < size(); ++i) {
        ports.push_back(free_port());
        peers += (i == 0 ? "" : ",") + std::string{"127.0.0.1:"} + std::to_string(ports.back());
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        auto& each = nodes_[i];
        each.port = free_port();
        each.url = home_->url(each.port);
        auto words = home_->command(each.port);
        const std::string& home = first ? home_->folder().path() : each.folder->path();
        for (auto& word : words) {
            const auto at = word.find(home_->folder().path());
            if (at == std::string::npos || word.starts_with("--init-file")) continue;
            word.replace(at, home_->folder().path().size(), home);
        }
        // Its users are in the data already. Before it has joined nothing can be written.
        if (!first) {
            std::erase_if(words, [](const auto& word) { return word.starts_with("--init-file"); });
        }
        const std::vector<std::string> cluster{
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-buffer-pool-size=16M",
            "--server-id=" + std::to_string(i + 1),
            "--wsrep-on=ON",
            "--wsrep-provider=" + find_provider(),
            "--wsrep-cluster-address=gcomm://" + (i == 0 ? std::string{} : peers),
            "--wsrep-cluster-name=rowlock",
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=copied",
            "--wsrep-slave-threads=2",
            "--wsrep-provider-options=gcache.size=16M;gmcast.listen_addr=tcp://127.0.0.1:" +
                std::to_string(ports[i]) +
                ";ist.recv_addr=127.0.0.1:" + std::to_string(free_port()) +
                ";evs.keepalive_period=PT0.5S;evs.join_retrans_period=PT0.5S;"
                "evs.inactive_check_period=PT0.25S;evs.suspect_timeout=PT1.5S;"
                "evs.inactive_timeout=PT3S;evs.install_timeout=PT2S"};
        words.insert(words.end(), cluster.begin(), cluster.end());
        const char* path = getenv("PATH");
        words.insert(words.begin(), {"env", "PATH=" + home_->folder().path() + ":" +
                                                (path == nullptr ? "/usr/bin:/bin" : path)});
        if (!first) {
            if (run_as_server({"cp", "-a", home_->folder().path() + "/data", home + "/data"},
                              *each.folder, "copy.log") != 0) {
                return false;
            }
        }
        each.process = std::make_unique<server_process>(
            words, first ? home_->folder() : *each.folder, "galera.log", SIGTERM);
        if (!comes_up(*each.process, each.url,
                      {.query = "select variable_value from information_schema.global_status "
                                "where variable_name = 'wsrep_ready'",
                       .answer = "ON"},
                      60s)) {
            return false;
        }
        if (first) {
            each.process->stop(SIGTERM);
            each.process.reset();
            return true;
        }
    }
    return true;
}

std::string galera_cluster::status(int node, const std::string& variable) const {
    const auto row = rowlock::open(url(node)).connect(soon())->query(
        "show global status where variable_name = '" + variable + "'", soon());
    return row.empty() ? std::string{} : std::string{row.text(0, 1)};
}

}  // namespace support
