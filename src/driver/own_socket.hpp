#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <utility>

/// For a library that blocks, has no deadline per call and hides its socket: this finds the socket
/// and shuts it down when a call runs out of time, so that the call returns. Such a library may
/// also open its socket without FD_CLOEXEC. Every program that is started afterwards would then
/// hold the connection open after our own end, and the server would keep what depends on it.
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

    /// Makes exec() close every connected socket opened since construction: ours and those of other
    /// threads, which cannot always be told apart. A program that another thread starts between the
    /// library's socket() and this call inherits the socket all the same.
    void close_on_exec() const noexcept;

    /// Returns a duplicate of the one socket opened since construction, which must be the caller's:
    /// it has opened one and not closed it. Returns nullopt if the socket cannot be identified:
    /// other threads open sockets too, there are very many, or there is no /proc. The duplicate
    /// keeps the connection open.
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
    std::set<entry> counted_;  ///< instead of before_, if /proc cannot be used
};

/// The thread that shuts sockets down. All connections of a process share one.
class deadlines {
public:
    /// Returns the existing thread, or a new one. A forked child has its own.
    /// @throws error errc::out_of_resources
    static std::shared_ptr<deadlines> of_this_process();
    virtual ~deadlines() = default;

    /// A call on a socket, from construction to end(). The socket must stay open for that long.
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

    /// Returns true if the socket was shut down; the library's result then means nothing else.
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
