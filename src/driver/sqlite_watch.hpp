#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace rowlock::sqlite {

/// Watches an SQLite file for commits by others, without asking SQLite: inotify tells that the log
/// (or, in rollback mode, the file) was written.
///
/// That is told *before* the commit can be seen: the frames are written, flushed to the disk, and
/// only then announced in shared memory, of which the kernel tells nobody. So what was written is
/// looked for again and again, at growing distances, until it shows or a second has passed. All
/// that stands behind one descriptor, which turns readable when a look is due.
///
/// A file that is written all the time is looked at eight times at once and then a thousand times a
/// second at most: the watch is deaf in between, and what is written meanwhile is found at its end.
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

    /// Ends the watch, so that a commit costs nobody anything: whoever writes does work for each
    /// watch, at each write. The descriptor stays.
    void rest() noexcept;
    /// Begins it again. What was written meanwhile is to be looked for.
    /// @throws error errc::unsupported if no watch is left
    void resume(const std::string& where);
    [[nodiscard]] bool resting() const noexcept { return resting_; }

    /// Whether the file may be looked at now. If not, the descriptor says when.
    [[nodiscard]] bool may_look(time_point now) const noexcept { return now >= deaf_until_; }
    /// To be called before a look: whether something was written since the last call.
    [[nodiscard]] bool was_written();
    /// To be called after the look, with what it has shown; when to look next.
    void looked(time_point now, bool written, bool changed);
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
    int log_failure_ = 0;  ///< why there is none, other than that there is no log
    bool listening_ = true;
    bool resting_ = false;
    /// The first write that no look has shown; the latest write.
    std::optional<time_point> pending_since_;
    time_point last_written_{};
    time_point reports_paid_until_{};
    time_point deaf_until_{};
};

}  // namespace rowlock::sqlite
