#include "support/server_process.hpp"

#include "support/lock_database.hpp"
#include "support/loopback.hpp"
#include "support/memory_folder.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace support {
namespace {

using namespace std::chrono_literals;

const passwd* nobody() {
    return geteuid() == 0 ? getpwnam("nobody") : nullptr;
}

void give_to_server(const std::string& path) {
    if (const passwd* user = nobody()) {
        if (chown(path.c_str(), user->pw_uid, user->pw_gid) != 0) {
            throw std::runtime_error{"chown: " + path};
        }
    }
}

pid_t start(const std::vector<std::string>& command, const server_folder& folder,
            const std::string& log) {
    std::vector<std::string> words;
    if (const passwd* user = nobody()) {
        words = {"setpriv", "--reuid=" + std::to_string(user->pw_uid),
                 "--regid=" + std::to_string(user->pw_gid), "--clear-groups"};
    }
    words.insert(words.end(), {"setpriv", "--pdeathsig=KILL", "--"});
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> pointers;
    for (auto& each : words) pointers.push_back(each.data());
    pointers.push_back(nullptr);

    folder.write(log, "");
    const std::string output = folder.path() + "/" + log;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_APPEND, 0);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawn_file_actions_addchdir_np(&files, folder.path().c_str());
    pid_t id = -1;
    const int failed =
        posix_spawnp(&id, pointers.front(), &files, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed != 0) throw std::runtime_error{"could not start " + command.front()};
    return id;
}

}  // namespace

server_folder::server_folder(place where)
    : path_{std::string{where == place::memory && has_memory() ? "/dev/shm" : "/tmp"} +
            "/rowlock-server-XXXXXX"} {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    give_to_server(path_);
}

server_folder::~server_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

void server_folder::write(const std::string& name, const std::string& text) const {
    const std::string path = path_ + "/" + name;
    std::ofstream{path} << text;
    chmod(path.c_str(), 0600);
    give_to_server(path);
}

std::string server_folder::read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream{path_ + "/" + name}.rdbuf();
    return text.str();
}

server_process::server_process(const std::vector<std::string>& command, const server_folder& folder,
                               const std::string& log, int stop_signal)
    : id_{start(command, folder, log)}, stop_signal_{stop_signal} {}

server_process::~server_process() {
    stop(stop_signal_);
}

bool server_process::is_running() {
    if (!over_) over_ = waitpid(id_, nullptr, WNOHANG) == id_;
    return !over_;
}

void server_process::stop(int signal) {
    if (!is_running()) return;
    kill(id_, signal);
    // Not soon: other processes of PostgreSQL would outlive the first for a while.
    if (eventually([this] { return !is_running(); }, 60s)) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    over_ = true;
}

void server_process::freeze() const {
    kill(id_, SIGSTOP);
}

void server_process::thaw() const {
    kill(id_, SIGCONT);
}

bool comes_up(server_process& server, const std::string& url, const sign_of_life& sign,
              std::chrono::milliseconds limit) {
    const auto source = rowlock::open(url);
    const auto answers = [&] {
        try {
            const auto found = source.connect(soon())->query(sign.query, soon());
            return !found.empty() && found.text(0, 0) == sign.answer;
        } catch (const rowlock::error&) {
            return !server.is_running();
        }
    };
    return eventually(answers, limit) && server.is_running();
}

int run_as_server(const std::vector<std::string>& command, const server_folder& folder,
                  const std::string& log) {
    int status = -1;
    waitpid(start(command, folder, log), &status, 0);
    return status;
}

std::uint16_t free_port() {
    const int made = bound_socket();
    const auto port = port_of(made);
    close(made);
    return port;
}

std::string random_password() {
    std::random_device random;
    std::string made;
    for (int i = 0; i < 24; ++i) made += "0123456789abcdef"[random() % 16];
    return made;
}

}  // namespace support
