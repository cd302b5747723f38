#include "driver/sqlite_watch.hpp"

#include "driver/monotonic_time.hpp"
#include <rowlock/error.hpp>

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

namespace rowlock::sqlite {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

// First pause before a repeated check: about the time of a commit with an fsync on a good disk.
constexpr auto first_pause = 200us;
// Limit of deafness while writes go on without a commit (a long transaction).
constexpr auto longest_deafness = 10ms;
// A written commit shows within the time of an fsync. Later ones are found by polling.
constexpr auto patience = 1s;
// Spacing of reports: each costs its reader a few statements.
constexpr auto report_spacing = 1ms;
constexpr auto reports_at_once = 8;
// Reads of the kernel's queue before a check, some hundred events each.
constexpr int most_reads = 16;

error no_watch(const std::string& where, int number) {
    std::string text =
        where + " cannot be watched for changes: " + std::generic_category().message(number);
    if (number == EMFILE || number == ENOSPC) {
        text +=
            "; raise fs.inotify.max_user_instances or max_user_watches, or the limit of open "
            "files";
    }
    return {errc::unsupported, text};
}

}  // namespace

file_watch::file_watch(const std::string& path, const std::string& where)
    : path_{path}, log_path_{path + "-wal"} {
    inotify_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (inotify_ >= 0) timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer_ >= 0) epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    bool made = epoll_ >= 0;
    for (const int each : {inotify_, timer_}) {
        epoll_event wanted{.events = EPOLLIN, .data = {}};
        made = made && ::epoll_ctl(epoll_, EPOLL_CTL_ADD, each, &wanted) == 0;
    }
    if (made) {
        (void)watch_files();
        made = file_ >= 0 && log_failure_ == 0;
        if (log_failure_ != 0) errno = log_failure_;
    }
    if (made) return;
    const int number = errno;
    close_all();
    throw no_watch(where, number);
}

file_watch::~file_watch() {
    close_all();
}

void file_watch::rest() noexcept {
    if (resting_) return;
    resting_ = true;
    listen_to_writers(false);
    wake_at({});
    drop_watches();
}

void file_watch::resume(const std::string& where) {
    if (!resting_) return;
    (void)watch_files();
    if (file_ < 0 || log_failure_ != 0) {
        const int number = log_failure_ != 0 ? log_failure_ : errno;
        drop_watches();
        throw no_watch(where, number);
    }
    resting_ = false;
    pending_since_.reset();
    deaf_until_ = {};
    listen_to_writers(true);
    wake_at(std::chrono::steady_clock::now());  // check at once
}

bool file_watch::was_written() {
    alignas(inotify_event) std::array<char, 4096> buffer{};
    bool any = false;
    bool other_files = log_ < 0;  // the log may be made at any time
    for (int reads = 0; reads < most_reads; ++reads) {
        const auto size = ::read(inotify_, buffer.data(), buffer.size());
        if (size <= 0) break;
        any = true;
        for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
            inotify_event event{};
            std::memcpy(&event, buffer.data() + at, sizeof event);
            if (event.mask != IN_MODIFY) other_files = true;
            at += sizeof event + event.len;
        }
    }
    // First watch, then check: a write in between is reported once more.
    const bool found = other_files && watch_files();
    return any || found;
}

void file_watch::checked(time_point now, bool written, bool changed) {
    if (written) {
        last_written_ = now;
        if (!pending_since_) pending_since_ = now;
    }
    if (changed) {
        // There is one writer at a time. If nothing was written since a check that did not show the
        // change, then the pending write is the one that shows now. Otherwise a second may be under
        // way.
        pending_since_ = written ? std::optional{now} : std::nullopt;
        reports_paid_until_ =
            std::max(reports_paid_until_, now - reports_at_once * report_spacing) + report_spacing;
        deaf_until_ = reports_paid_until_;
    }
    if (pending_since_ && now - last_written_ > patience) pending_since_.reset();
    std::optional<time_point> next;
    if (pending_since_) {
        const nanoseconds pause = std::max<nanoseconds>(first_pause, (now - *pending_since_) / 4);
        next = now + pause;
        if (written) {
            next = now + std::min<nanoseconds>(pause, longest_deafness);
            deaf_until_ = std::max(deaf_until_, *next);
        }
    }
    const bool deaf = deaf_until_ > now;
    if (deaf) next = std::max(next.value_or(deaf_until_), deaf_until_);
    listen_to_writers(!deaf);
    wake_at(next);
}

// Returns true if a file is watched now that was not before.
bool file_watch::watch_files() {
    // IN_ATTRIB: a file that was removed while it is open.
    constexpr std::uint32_t events = IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
    const int log = ::inotify_add_watch(inotify_, log_path_.c_str(), events);
    log_failure_ = log >= 0 || errno == ENOENT ? 0 : errno;
    const int file = ::inotify_add_watch(inotify_, path_.c_str(), events);
    const bool fresh = (log >= 0 && log != log_) || (file >= 0 && file != file_);
    log_ = log;
    file_ = file;
    return fresh;
}

void file_watch::drop_watches() noexcept {
    for (int* const watch : {&log_, &file_}) {
        if (*watch >= 0) (void)::inotify_rm_watch(inotify_, *watch);
        *watch = -1;
    }
}

void file_watch::listen_to_writers(bool listen) {
    if (listen == listening_) return;
    epoll_event wanted{.events = listen ? EPOLLIN : 0U, .data = {}};
    if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, inotify_, &wanted) == 0) listening_ = listen;
}

// Also clears a timer that has already expired.
void file_watch::wake_at(std::optional<time_point> when) const {
    itimerspec at{};
    if (when) at.it_value = driver::monotonic_time(*when);
    (void)::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr);
}

void file_watch::close_all() noexcept {
    for (const int each : {epoll_, timer_, inotify_}) {
        if (each >= 0) ::close(each);
    }
}

}  // namespace rowlock::sqlite
