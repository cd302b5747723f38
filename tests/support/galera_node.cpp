#include "support/galera_node.hpp"

#include "support/lock_database.hpp"
#include "support/servers.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace support {
namespace {

using namespace std::chrono_literals;

constexpr const char* install = "mariadb-install-db";

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

/// Two ports: for clients, and the next for the cluster. Below the range for outgoing connections.
std::uint16_t free_port() {
    std::random_device random;
    std::uniform_int_distribution<int> pick{20'000, 31'990};
    const auto is_free = [](int port) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port = htons(static_cast<std::uint16_t>(port));
        const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr address{};
        static_assert(sizeof address == sizeof at);
        std::copy_n(reinterpret_cast<const char*>(&at), sizeof at,  // NOLINT
                    reinterpret_cast<char*>(&address));             // NOLINT
        const bool bound = bind(descriptor, &address, sizeof address) == 0;
        close(descriptor);
        return bound;
    };
    for (;;) {
        const int port = pick(random);
        if (is_free(port) && is_free(port + 1) && is_free(port + 2)) {
            return static_cast<std::uint16_t>(port);
        }
    }
}

std::string random_password() {
    std::random_device random;
    std::string made;
    for (int i = 0; i < 24; ++i) made += "0123456789abcdef"[random() % 16];
    return made;
}

struct account {
    uid_t user;
    gid_t group;
};

/// Servers refuse to run as root, so root gives them to `nobody`.
std::optional<account> unprivileged() {
    if (geteuid() != 0) return std::nullopt;
    const passwd* const nobody = getpwnam("nobody");
    if (nobody == nullptr) throw std::runtime_error{"no unprivileged user for a Galera node"};
    return account{nobody->pw_uid, nobody->pw_gid};
}

void give_away(const std::string& path) {
    const auto who = unprivileged();
    if (who && chown(path.c_str(), who->user, who->group) != 0) {
        throw std::runtime_error{"a Galera node's file cannot be given to `nobody`"};
    }
}

/// Runs in the child: becomes `nobody` if we are root, says to be killed with its parent, and turns
/// into the program.
[[noreturn]] void become(const std::vector<std::string>& command, const std::string& folder,
                         pid_t parent, const std::optional<account>& who) {
    const int log =
        open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, 0);
    dup2(log, 1);
    dup2(log, 2);
    if (who && (setgroups(0, nullptr) != 0 || setgid(who->group) != 0 || setuid(who->user) != 0)) {
        _exit(126);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(folder.c_str()) != 0) _exit(126);
    setsid();
    std::vector<char*> arguments;
    for (const auto& one : command) arguments.push_back(const_cast<char*>(one.c_str()));  // NOLINT
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
}

pid_t spawn(const std::vector<std::string>& command, const std::string& folder) {
    const pid_t parent = getpid();
    const auto who = unprivileged();  // not in the child, whose other threads are missing
    const pid_t child = fork();
    if (child == 0) become(command, folder, parent, who);
    if (child < 0) throw std::runtime_error{"no process for a Galera node"};
    return child;
}

std::string make_folder() {
    std::string pattern = "/tmp/rowlock-galera-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    give_away(pattern);
    return pattern;
}

std::string last_words(const std::string& folder) {
    std::ifstream log{folder + "/log"};
    const std::string text{std::istreambuf_iterator<char>{log}, {}};
    return text.size() > 3000 ? text.substr(text.size() - 3000) : text;
}

}  // namespace

galera_node::galera_node() {
    if (find_provider().empty() || find_program("mariadbd").empty() ||
        find_program(install).empty()) {
        miss_program("a Galera node", "mariadb-server-core mariadb-client-core galera-4");
        return;
    }
    folder_ = make_folder();
    const pid_t making =
        spawn({find_program(install), "--no-defaults", "--datadir=" + folder_ + "/data",
               "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"},
              folder_);
    int status = 0;
    waitpid(making, &status, 0);
    if (status != 0) throw std::runtime_error{"no data folder for Galera: " + last_words(folder_)};
    for (int attempt = 0; attempt < 3; ++attempt) {
        if (start(free_port())) return;
    }
    const auto words = last_words(folder_);
    stop();
    throw std::runtime_error{"a Galera node did not start: " + words};
}

galera_node::~galera_node() {
    stop();
}

bool galera_node::start(std::uint16_t port) {
    const std::string password = random_password();
    const std::string init = folder_ + "/init.sql";
    {
        std::ofstream file{init};
        file << "set password for root@localhost = password('" << password << "');\n"
             << "create or replace user rowlock@'%' identified by '" << password << "';\n"
             << "grant all on *.* to rowlock@'%' with grant option;\n"
             << "create database if not exists rowlock character set utf8mb4;\n";
    }
    chmod(init.c_str(), 0600);
    give_away(init);
    const auto number = [](int value) { return std::to_string(value); };
    process_ =
        spawn({find_program("mariadbd"),
               "--no-defaults",
               "--datadir=" + folder_ + "/data",
               "--port=" + number(port),
               "--bind-address=127.0.0.1",
               "--socket=" + folder_ + "/socket",
               "--pid-file=" + folder_ + "/pid",
               "--init-file=" + init,
               "--tmpdir=" + folder_,
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
                   number(port + 1) + ";ist.recv_addr=127.0.0.1:" + number(port + 2)},
              folder_);
    url_ = "mysql://rowlock:" + password + "@127.0.0.1:" + std::to_string(port) + "/rowlock";
    if (is_ready()) return true;
    stop_process();
    return false;
}

/// Answers, and is part of its cluster.
bool galera_node::is_ready() {
    const auto source = rowlock::open(url_);
    return eventually(
               [&] {
                   int status = 0;
                   if (waitpid(process_, &status, WNOHANG) == process_) {
                       process_ = 0;
                       return true;
                   }
                   try {
                       const auto db = source.connect(std::chrono::steady_clock::now() + 1s);
                       const auto ready = db->query("show status like 'wsrep_ready'",
                                                    std::chrono::steady_clock::now() + 1s);
                       return !ready.empty() && ready.text(0, 1) == "ON";
                   } catch (const rowlock::error&) {
                       return false;
                   }
               },
               60s) &&
           process_ > 0;
}

void galera_node::stop_process() noexcept {
    if (process_ <= 0) return;
    kill(process_, SIGTERM);
    for (int i = 0; i < 100; ++i) {
        if (waitpid(process_, nullptr, WNOHANG) == process_) {
            process_ = 0;
            return;
        }
        usleep(50'000);
    }
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
}

void galera_node::stop() noexcept {
    stop_process();
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace support
