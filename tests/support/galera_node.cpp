#include "support/galera_node.hpp"

#include "support/servers.hpp"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace support {
namespace {

std::string find_provider() {
    for (const char* path : {"/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so",
                             "/usr/lib64/galera-4/libgalera_smm.so"}) {
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

}  // namespace support
