#pragma once

#include "common/measure.hpp"
#include "handoff/race.hpp"

#include <future>
#include <memory>
#include <string>

struct _zhandle;

/// Locks on ZooKeeper by its C client, with one session for each worker, by its recipe: an
/// ephemeral node with a sequential name below the lock. The session with the lowest node holds the
/// lock, the others watch the node before their own.
namespace bench {

class zookeeper_session {
public:
    struct close_handle {
        void operator()(_zhandle* handle) const;
    };

    enum class node : unsigned char { lock, read };

    /// Connects and makes the node of the lock.
    zookeeper_session(const std::string& host, const std::string& lock, node kind = node::lock);

    void acquire();
    void release();

private:
    [[nodiscard]] std::string name_before_mine();
    void await_end_of(const std::string& path);

    // The ZooKeeper client's threads may write to these until the handle is closed.
    std::promise<void> connected_;
    std::promise<void> gone_;
    std::unique_ptr<_zhandle, close_handle> handle_;
    const node kind_;
    std::string lock_;
    std::string mine_;
};

[[nodiscard]] std::unique_ptr<worker> zookeeper_lock(const std::string& host,
                                                     const std::string& name);
/// A reader waits for nodes of writers before its own alone.
[[nodiscard]] std::unique_ptr<worker> zookeeper_read_lock(const std::string& host,
                                                          const std::string& name);
[[nodiscard]] handoff::contest zookeeper_queue(const std::string& host, const std::string& tag);

}  // namespace bench
