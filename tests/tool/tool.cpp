#include "tool/tool.hpp"

#include "support/memory_folder.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>
#include <utility>

namespace tool {
namespace {

using namespace std::chrono_literals;

constexpr unsigned nobody = 65534;

void redirect(int descriptor, const std::string& path, int flags) {
    const int file = open(path.c_str(), flags, 0644);
    if (file < 0 || dup2(file, descriptor) < 0) _exit(125);
    close(file);
}

[[noreturn]] void become(const arguments& command, const setting& with, int program) {
    for (const auto& [name, value] : with.variables) setenv(name.c_str(), value.c_str(), 1);
    if (!with.folder.empty() && chdir(with.folder.c_str()) != 0) _exit(125);
    std::vector<char*> words;
    for (const auto& each : command) words.push_back(const_cast<char*>(each.c_str()));
    words.push_back(nullptr);
    std::signal(SIGPIPE, SIG_DFL);  // which MariaDB's library ignores in this process
    if (with.before_exec) with.before_exec();
    if (with.unprivileged && geteuid() == 0 && (setgid(nobody) != 0 || setuid(nobody) != 0)) {
        _exit(125);
    }
    // By descriptor, since another user may be unable to enter the build folder.
    if (program >= 0) fexecve(program, words.data(), environ);
    execvp(words.front(), words.data());
    _exit(125);
}

class sqlite_file final : public tables {
public:
    explicit sqlite_file(tables_wanted made) {
        prefix_ = "rowlock_";
        url_ = "sqlite:" + (folder_ / "locks.db");
        if (made == tables_wanted::made) rowlock::migrate(source());
    }
    [[nodiscard]] const char* name() const override { return "SQLite"; }

private:
    scratch folder_{support::memory_folder()};
};

class server_prefix final : public tables {
public:
    server_prefix(support::server which, std::string url, tables_wanted made) : which_{which} {
        static std::atomic<int> count{0};
        prefix_ = "t" + std::to_string(getpid()) + "_" + std::to_string(++count) + "_" +
                  std::to_string(std::random_device{}() % 10000) + "_";
        url_ = std::move(url);
        if (made == tables_wanted::made) rowlock::migrate(source());
    }
    server_prefix(const server_prefix&) = delete;
    server_prefix& operator=(const server_prefix&) = delete;
    ~server_prefix() override {
        try {
            rowlock::migrate(source(), {}, 0);
        } catch (const rowlock::error& failure) {
            MESSAGE("left behind: ", prefix_, ": ", failure.what(), failure.server_message());
        }
    }
    [[nodiscard]] const char* name() const override {
        return which_ == support::server::postgresql ? "PostgreSQL" : "MariaDB";
    }

private:
    support::server which_;
};

}  // namespace

scratch::scratch() : scratch{std::filesystem::temp_directory_path().string()} {}

scratch::scratch(const std::string& parent) : path_{parent + "/rowlock-cli-XXXXXX"} {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    REQUIRE(chmod(path_.c_str(), 0755) == 0);
}

scratch::~scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

process::process(const arguments& command, setting with) : with_{std::move(with)} {
    with_.variables.try_emplace("HOME", files_.path());
    const int program =
        with_.unprivileged ? open(command.front().c_str(), O_RDONLY | O_CLOEXEC) : -1;
    id_ = fork();
    REQUIRE(id_ >= 0);
    if (id_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (const char* name :
             {"ROWLOCK_URL", "ROWLOCK_URL_FILE", "ROWLOCK_HOLDS", "XDG_STATE_HOME"}) {
            unsetenv(name);
        }
        redirect(STDIN_FILENO, with_.standard_input, O_RDONLY);
        redirect(STDOUT_FILENO,
                 with_.standard_output.empty() ? files_ / "out" : with_.standard_output,
                 O_WRONLY | O_CREAT | O_TRUNC);
        redirect(STDERR_FILENO, files_ / "err", O_WRONLY | O_CREAT | O_TRUNC);
        become(command, with_, program);
    }
    if (program >= 0) close(program);
}

process::~process() {
    if (is_over()) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
}

void process::send(int signal) const {
    REQUIRE(kill(id_, signal) == 0);
}

bool process::is_over() {
    if (code_) return true;
    int status = 0;
    if (waitpid(id_, &status, WNOHANG) != id_) return false;
    code_ = WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
}

int process::wait(std::chrono::seconds limit) {
    REQUIRE_MESSAGE(eventually([this] { return is_over(); }, limit), "the process does not end");
    return *code_;
}

std::string process::out() const {
    return contents(files_ / "out");
}
std::string process::err() const {
    return contents(files_ / "err");
}

arguments command_line(const arguments& command) {
    arguments all{ROWLOCK_TOOL_PATH};
    all.insert(all.end(), command.begin(), command.end());
    return all;
}

answer rowlock(const arguments& command, const setting& with) {
    process one{command_line(command), with};
    const int code = one.wait();
    return {code, one.out(), one.err()};
}

bool eventually(const std::function<bool()>& condition, std::chrono::seconds limit) {
    return support::eventually(condition, limit);
}

bool is_alive(pid_t process) {
    const std::string stat = contents("/proc/" + std::to_string(process) + "/stat");
    const auto end = stat.rfind(')');
    return end != std::string::npos && stat.size() > end + 2 && stat[end + 2] != 'Z' &&
           stat[end + 2] != 'X';
}

std::vector<pid_t> children_of(pid_t parent) {
    const std::string id = std::to_string(parent);
    std::vector<pid_t> all;
    for (const pid_t each : pids_in("/proc/" + id + "/task/" + id + "/children")) {
        if (is_alive(each)) all.push_back(each);
    }
    return all;
}

bool runs_its_command(const process& run) {
    return eventually([&] {
        return std::ranges::any_of(children_of(run.id()), [](pid_t supervisor) {
            return !children_of(supervisor).empty();
        });
    });
}

std::string contents(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::vector<pid_t> pids_in(const std::string& path) {
    std::istringstream text{contents(path)};
    std::vector<pid_t> all;
    for (pid_t each = 0; text >> each;) all.push_back(each);
    return all;
}

arguments tables::operator()(arguments command) const {
    command.insert(command.begin() + 1, {"--prefix", prefix_});
    return command;
}

setting tables::in_environment(setting with) const {
    with.variables["ROWLOCK_URL"] = url_;
    return with;
}

rowlock::sql::connection_source tables::source() const {
    return rowlock::open(url_).with_tables({.prefix = prefix_});
}

std::int64_t tables::count(const std::string& rows) const {
    if (!counting_) counting_ = source().connect(support::soon());
    std::string query = "select count(*) from " + rows;
    for (std::size_t at = 0; (at = query.find("rowlock_", at)) != std::string::npos;
         at += prefix_.size()) {
        query.replace(at, std::string_view{"rowlock_"}.size(), prefix_);
    }
    return counting_->query(query, support::soon()).integer(0, 0);
}

bool tables::becomes(std::int64_t count, const std::string& rows) const {
    return eventually([&] { return this->count(rows) == count; });
}

void tables::let_pass(std::chrono::seconds time) const {
    const auto db = source().connect(support::soon());
    const auto seconds = std::to_string(time.count());
    const std::string less = db->speaks() == rowlock::sql::dialect::postgresql
                                 ? " - interval '" + seconds + " seconds'"
                                 : " - " + seconds + "000000";
    for (const auto& [table, column] :
         {std::pair{"session", "expires_at"}, {"lock", "deadline"}, {"hold", "deadline"}}) {
        db->query("update " + prefix_ + table + " set " + column + " = " + column + less,
                  support::soon());
    }
}

bool tables::queue_becomes(std::int64_t count, const std::string& name) const {
    return becomes(count, "rowlock_ticket where name = '" + name + "'");
}

answer tables::run(const arguments& command, setting with) const {
    return rowlock((*this)(command), in_environment(std::move(with)));
}

std::unique_ptr<tables> sqlite_tables(tables_wanted made) {
    return std::make_unique<sqlite_file>(made);
}

std::unique_ptr<tables> server_tables(support::server which, tables_wanted made) {
    auto url = support::url_of(which);
    if (!url) return nullptr;
    return std::make_unique<server_prefix>(which, std::move(*url), made);
}

std::vector<std::unique_ptr<tables>> all_tables(tables_wanted made) {
    std::vector<std::unique_ptr<tables>> all;
    if (!support::mysql_alone()) all.push_back(sqlite_tables(made));
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        if (auto one = server_tables(which, made)) all.push_back(std::move(one));
    }
    return all;
}

std::vector<std::unique_ptr<tables>> for_the_tool() {
    if (support::wanted_driver() == "every") return all_tables();
    std::vector<std::unique_ptr<tables>> one;
    if (support::mysql_alone()) return one;
    if (auto its = server_tables(support::server::postgresql)) one.push_back(std::move(its));
    return one;
}

}  // namespace tool
