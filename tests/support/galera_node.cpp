#include "support/galera_node.hpp"

#include "support/servers.hpp"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string_view>
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

std::string find_program(std::string_view name) {
    std::string places = "/usr/sbin:/usr/libexec:/usr/bin:/usr/local/sbin:";
    if (const char* path = getenv("PATH")) places = std::string{path} + ":" + places;
    for (std::size_t at = 0; at < places.size();) {
        const auto end = std::min(places.find(':', at), places.size());
        auto file = places.substr(at, end - at).append("/").append(name);
        if (access(file.c_str(), X_OK) == 0) return file;
        at = end + 1;
    }
    return {};
}

std::string random_password() {
    std::random_device random;
    std::string made;
    for (int i = 0; i < 24; ++i) made += "0123456789abcdef"[random() % 16];
    return made;
}

std::string users(const std::string& password) {
    return "set password for root@localhost = password('" + password +
           "');\ncreate or replace user rowlock@'%' identified by '" + password +
           "';\ngrant all on *.* to rowlock@'%' with grant option;\n"
           "create database if not exists rowlock character set utf8mb4;\n";
}

/// Answers clients on `port`, which must differ from those of the cluster.
std::vector<std::string> command(const std::string& program, const std::string& home,
                                 const std::string& port) {
    return {program,
            "--no-defaults",
            "--datadir=" + home + "/data",
            "--port=" + port,
            "--bind-address=127.0.0.1",
            "--socket=" + home + "/socket",
            "--pid-file=" + home + "/pid",
            "--init-file=" + home + "/init.sql",
            "--tmpdir=" + home,
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-buffer-pool-size=32M",
            "--wsrep-on=ON",
            "--wsrep-provider=" + find_provider(),
            "--wsrep-cluster-address=gcomm://",
            "--wsrep-cluster-name=rowlock",
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=rsync",
            "--wsrep-provider-options=gcache.size=1M;gmcast.listen_addr=tcp://127.0.0.1:" +
                std::to_string(free_port()) +
                ";ist.recv_addr=127.0.0.1:" + std::to_string(free_port())};
}

}  // namespace

std::unique_ptr<galera_node> galera_node::start() {
    const auto program = find_program("mariadbd");
    const auto install = find_program("mariadb-install-db");
    if (find_provider().empty() || program.empty() || install.empty()) {
        miss_program("a Galera node", "mariadb-server-core mariadb-client-core galera-4");
        return nullptr;
    }
    std::unique_ptr<galera_node> made{new galera_node};
    const server_folder& folder = made->folder_;
    if (run_as_server(
            {install, "--no-defaults", "--datadir=" + folder.path() + "/data",
             "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"},
            folder, "install.log") != 0) {
        throw std::runtime_error{"no data folder for Galera: " + folder.read("install.log")};
    }
    const std::string password = random_password();
    folder.write("init.sql", users(password));
    for (int attempt = 0; attempt < 3; ++attempt) {
        const auto port = std::to_string(free_port());
        made->process_ = std::make_unique<server_process>(command(program, folder.path(), port),
                                                          folder, "galera.log", SIGTERM);
        made->url_ = "mysql://rowlock:" + password + "@127.0.0.1:" + port + "/rowlock";
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
