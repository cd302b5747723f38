// A process of the fault suite that holds a lease and, where the database has them, an advisory
// lock, and leaves another program behind. crew.cpp starts it, like holder.cpp.
//
//   fault_parent KEY=VALUE…     the URL in the environment, ROWLOCK_STRESS_URL
//
// `how`: child      starts a program and goes on
//        daemon     the same, in its own session, two generations away
//        exec       becomes that program itself
// `leak`: 1 = the descriptors are not closed when a program is executed, as before FD_CLOEXEC
//
// Prints "ready", starts at the first line of its standard input, writes the id of the other
// program into its log, and prints "holds".

#include <rowlock/advisory_lock.hpp>
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>

namespace {

using settings = std::map<std::string, std::string>;

settings read_settings(int count, char** words) {
    settings all;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const auto at = word.find('=');
        all[word.substr(0, at)] = word.substr(at + 1);
    }
    if (const char* url = std::getenv("ROWLOCK_STRESS_URL")) all["url"] = url;
    return all;
}

void say(const char* word) {
    std::puts(word);
    std::fflush(stdout);
}

void leave_open() {
    DIR* const folder = ::opendir("/proc/self/fd");
    while (const dirent* const each = ::readdir(folder)) {
        const int number = std::atoi(each->d_name);
        if (number > 2 && number != ::dirfd(folder)) ::fcntl(number, F_SETFD, 0);
    }
    ::closedir(folder);
}

[[noreturn]] void become_a_program() {
    // None of the test's descriptors: the test waits for the end of this process's output.
    for (const int number : {0, 1, 2}) ::dup2(::open("/dev/null", O_RDWR | O_CLOEXEC), number);
    ::execlp("sleep", "sleep", "60", nullptr);
    ::_exit(127);
}

void note_child(const std::string& log, pid_t child) {
    std::ofstream{log} << child << std::endl;
}

void start_program(const settings& with) {
    const std::string& log = with.at("log");
    const pid_t child = ::fork();
    if (child == 0) {
        if (with.at("how") == "child") become_a_program();
        ::setsid();
        if (const pid_t grandchild = ::fork(); grandchild != 0) {
            note_child(log, grandchild);
            ::_exit(0);
        }
        become_a_program();
    }
    if (with.at("how") == "child") {
        note_child(log, child);
    } else {
        ::waitpid(child, nullptr, 0);
    }
}

int run(const settings& with) {
    const auto source = rowlock::open(with.at("url")).with_tables({.prefix = with.at("prefix")});
    rowlock::client locks{source, {.ttl = std::chrono::milliseconds{std::stoi(with.at("ttl_ms"))}}};
    std::optional<rowlock::advisory_client> advisory;
    if (source.speaks() != rowlock::sql::dialect::sqlite) advisory.emplace(source);
    say("ready");
    char byte = 0;
    if (::read(STDIN_FILENO, &byte, 1) != 1) return 0;
    const auto lease = locks.acquire("lease");
    std::optional<rowlock::advisory_lock> bound;
    if (advisory) bound = advisory->lock(with.at("prefix") + "bound");
    if (with.at("leak") == "1") leave_open();
    if (with.at("how") == "exec") {
        note_child(with.at("log"), ::getpid());
        say("holds");
        if (::read(STDIN_FILENO, &byte, 1) < 0) return 1;
        become_a_program();
    }
    start_program(with);
    say("holds");
    for (;;) ::pause();  // until it is killed
}

}  // namespace

int main(int count, char** words) {
    try {
        return run(read_settings(count, words));
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "fault_parent: %s\n", failure.what());
        return 2;
    }
}
