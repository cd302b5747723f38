#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <utility>

/// For a library that blocks, knows no deadline of a single call and shows its socket to nobody:
/// the socket is found, and shut down when a call has run out of time. Then the call returns. Such
/// a library may open its socket without FD_CLOEXEC, too: every program that is started afterwards
/// would hold the connection open, and the server keep what hangs on it, after our own end.
namespace rowlock::driver {

/// A descriptor of our own, closed with this object.
class descriptor {
public:
    explicit descriptor(int number) noexcept : number_{number} {}
    descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
    descriptor& operator=(descriptor&&) = delete;
    ~descriptor();

    [[nodiscard]] int number() const noexcept { return number_; }

private:
    int number_;
};

/// The stream sockets that this process has open.
class open_sockets {
public:
    open_sockets();

    /// Closes every connected socket that was opened since when another program is executed, ours
    /// and those that other threads have opened meanwhile: which is which cannot always be told. A
    /// program that another thread starts between the library's socket() and this inherits the
    /// socket all the same.
    void close_on_exec() const noexcept;

    /// A duplicate of the one socket that was opened since, which then is the caller's own: it has
    /// opened one and not closed it. Nothing if it cannot be told which: other threads open sockets
    /// too, there are very many, or there is no /proc. The duplicate keeps the connection open.
    [[nodiscard]] std::optional<descriptor> only_new_one() const;

private:
    struct entry {
        unsigned long inode;
        int number;
        auto operator<=>(const entry&) const = default;
    };
    static std::optional<std::set<entry>> look();
    static std::set<entry> look_at_each();

    std::optional<std::set<entry>> before_;
    std::set<entry> counted_;  ///< instead of before_, where /proc does not tell
};

/// The thread that shuts sockets down. One for all connections of a process, which share it.
class deadlines {
public:
    /// The one that there is, or a new one. A forked child has its own.
    /// @throws error errc::out_of_resources
    static std::shared_ptr<deadlines> of_this_process();
    virtual ~deadlines() = default;

    /// From now on until its end, a call on this socket, which must stay open so long.
    class call;

protected:
    struct entry {
        sql::deadline until;
        int socket;
        bool passed = false;
    };

    deadlines() = default;

private:
    virtual void begin(entry& one) = 0;
    virtual void end(entry& one) noexcept = 0;
};

class deadlines::call {
public:
    call(deadlines& watch, const descriptor& socket, sql::deadline until)
        : watch_{watch}, entry_{until, socket.number()} {
        watch_.begin(entry_);
    }
    call(const call&) = delete;
    call& operator=(const call&) = delete;
    ~call() { end(); }

    /// True if the socket was shut down: what the library said means nothing but that.
    bool end() noexcept {
        if (!std::exchange(ended_, true)) watch_.end(entry_);
        return entry_.passed;
    }

private:
    deadlines& watch_;
    entry entry_;
    bool ended_ = false;
};

/// While it lives, writing to a broken connection raises no SIGPIPE in this thread.
class no_pipe_signal {
public:
    no_pipe_signal() noexcept;
    no_pipe_signal(const no_pipe_signal&) = delete;
    no_pipe_signal& operator=(const no_pipe_signal&) = delete;
    ~no_pipe_signal();

private:
    bool was_blocked_ = true;
};

}  // namespace rowlock::driver
