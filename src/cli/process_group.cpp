#include "cli/process_group.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

namespace rowlock::cli {
namespace {

struct close_folder {
    void operator()(DIR* folder) const noexcept { closedir(folder); }
};

struct process {
    char state = 'X';
    int group = 0;
    int session = 0;
    int threads = 0;
};

/// Field 2 of /proc/PID/stat is the program's name in parentheses and may itself hold any of them.
process read_process(const char* pid) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    char text[512];
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return {};
    text[size] = '\0';
    const char* rest = std::strrchr(text, ')');
    process found;
    int parent = 0;
    if (rest == nullptr ||
        std::sscanf(rest + 1,
                    " %c %d %d %d" /* then num_threads */
                    " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d",
                    &found.state, &parent, &found.group, &found.session, &found.threads) != 5) {
        return {};
    }
    return found;
}

/// A process whose first thread has ended shows as a zombie while its other threads go on.
bool is_running(const process& it) noexcept {
    return (it.state != 'Z' && it.state != 'X' && it.state != 'x') || it.threads > 1;
}

/// A process that hides its memory, as `rowlock run` does, is not seen in a /proc that hides what
/// others may not trace (hidepid). As a child of ours it is.
bool has_children_of_ours(pid_t group) noexcept {
    siginfo_t found{};
    return waitid(P_PGID, static_cast<id_t>(group), &found, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

std::chrono::nanoseconds boot_time() noexcept {
    timespec time{};
    clock_gettime(CLOCK_BOOTTIME, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

bool has_living_members(pid_t group) noexcept {
    if (kill(-group, 0) != 0 && errno == ESRCH) return false;
    if (has_children_of_ours(group)) return true;
    const std::unique_ptr<DIR, close_folder> processes{opendir("/proc")};
    if (!processes) return true;
    const pid_t session = getsid(0);
    while (const dirent* entry = readdir(processes.get())) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        const process found = read_process(entry->d_name);
        if (found.group == group && found.session == session && is_running(found)) {
            return true;
        }
    }
    return false;
}

bool collect_children() noexcept {
    for (;;) {
        const pid_t ended = waitpid(-1, nullptr, WNOHANG);
        if (ended > 0 || (ended < 0 && errno == EINTR)) continue;
        return ended == 0;
    }
}

}  // namespace rowlock::cli
