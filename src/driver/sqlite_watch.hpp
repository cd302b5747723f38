#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace rowlock::sqlite {

/// Watches an SQLite file for commits of other connections without asking SQLite: inotify reports
/// that the log (or, in rollback mode, the file) was written.
///
/// The report comes *before* the commit is visible: SQLite writes the frames, flushes them to the
/// disk, and only then announces them in shared memory, which the kernel does not report. So the
/// caller checks again at growing intervals until the commit shows or a second has passed. One
/// descriptor stands for all this: it turns readable when a check is due.
///
/// A file that is written all the time is checked eight times at once and then at most a thousand
/// times a second: in between the watch is deaf, and the next check finds what was written
/// meanwhile.
class file_watch {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// Opens three descriptors. `where` names the file for people.
    /// @throws error errc::unsupported if none are left, or no watch.
    file_watch(const std::string& path, const std::string& where);
    file_watch(const file_watch&) = delete;
    file_watch& operator=(const file_watch&) = delete;
    ~file_watch();

    [[nodiscard]] int descriptor() const noexcept { return epoll_; }

    /// Ends the watch, so that commits cost nothing: each write does work for each watch. The
    /// descriptor stays.
    void rest() noexcept;
    /// Begins the watch again. The caller must check for what was written meanwhile.
    /// @throws error errc::unsupported if no watch is left
    void resume(const std::string& where);
    [[nodiscard]] bool resting() const noexcept { return resting_; }

    /// Whether the file may be checked now. If not, the descriptor turns readable when it may.
    [[nodiscard]] bool may_look(time_point now) const noexcept { return now >= deaf_until_; }
    /// Call before a check: returns whether something was written since the last call.
    [[nodiscard]] bool was_written();
    /// Call after a check, with its result; schedules the next check.
    void checked(time_point now, bool written, bool changed);
    /// Whether there is a write-ahead log.
    [[nodiscard]] bool has_log() const noexcept { return log_ >= 0; }

private:
    bool watch_files();
    void drop_watches() noexcept;
    void listen_to_writers(bool listen);
    void wake_at(std::optional<time_point> when) const;
    void close_all() noexcept;

    std::string path_;
    std::string log_path_;
    int inotify_ = -1;
    int timer_ = -1;
    int epoll_ = -1;
    int file_ = -1;  ///< the watch
    int log_ = -1;
    int log_failure_ = 0;  ///< errno if there is a log that cannot be watched
    bool listening_ = true;
    bool resting_ = false;
    /// The first write that no check has shown; the latest write.
    std::optional<time_point> pending_since_;
    time_point last_written_{};
    time_point reports_paid_until_{};
    time_point deaf_until_{};
};

}  // namespace rowlock::sqlite
