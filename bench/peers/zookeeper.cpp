#include "peers/zookeeper.hpp"

// The header declares its synchronous calls only if THREADED is defined.
#ifndef THREADED
#define THREADED
#endif
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <stdexcept>

namespace bench {
namespace {

using promise = std::promise<void>;

constexpr auto patience = std::chrono::minutes{1};

void check(int code, const char* what) {
    if (code != ZOK)
        throw std::runtime_error{std::string{"ZooKeeper: "} + what + ": " + ::zerror(code)};
}

/// The session's own watcher, which waits for the connection.
void when_connected(zhandle_t*, int type, int state, const char*, void* context) {
    if (type != ZOO_SESSION_EVENT || state != ZOO_CONNECTED_STATE) return;
    try {
        static_cast<promise*>(context)->set_value();
    } catch (const std::future_error&) {
        // A reconnect.
    }
}

/// Called once for each watch, and for changes of the connection, which are ignored: a worker whose
/// session ends fails with its next call.
void when_gone(zhandle_t*, int type, int, const char*, void* context) {
    if (type != ZOO_SESSION_EVENT) static_cast<promise*>(context)->set_value();
}

/// The server ends a name with ten digits.
std::string number_in(const std::string& node) {
    constexpr std::size_t digits = 10;
    return node.size() < digits ? std::string{} : node.substr(node.size() - digits);
}

}  // namespace

void zookeeper_session::close_handle::operator()(_zhandle* handle) const {
    ::zookeeper_close(handle);
}

zookeeper_session::zookeeper_session(const std::string& host, const std::string& lock, node kind)
    : kind_{kind}, lock_{"/" + lock} {
    ::zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    handle_.reset(::zookeeper_init(host.c_str(), when_connected, 30'000, nullptr, &connected_, 0));
    if (!handle_) throw std::runtime_error{"ZooKeeper: no memory for a session"};
    if (connected_.get_future().wait_for(patience) != std::future_status::ready) {
        throw std::runtime_error{"ZooKeeper: cannot connect"};
    }
    ::zoo_set_watcher(handle_.get(), nullptr);
    const int made = ::zoo_create(handle_.get(), lock_.c_str(), nullptr, -1, &ZOO_OPEN_ACL_UNSAFE,
                                  ZOO_PERSISTENT, nullptr, 0);
    if (made != ZNODEEXISTS) check(made, "cannot make the node of the lock");
}

void zookeeper_session::acquire() {
    std::array<char, 512> path{};
    const std::string pattern = lock_ + (kind_ == node::read ? "/read-" : "/place-");
    check(::zoo_create(handle_.get(), pattern.c_str(), nullptr, -1, &ZOO_OPEN_ACL_UNSAFE,
                       ZOO_EPHEMERAL_SEQUENTIAL, path.data(), static_cast<int>(path.size())),
          "cannot create a queue node");
    mine_ = path.data();
    for (;;) {
        const std::string before = name_before_mine();
        if (before.empty()) return;
        await_end_of(lock_ + "/" + before);
    }
}

void zookeeper_session::release() {
    check(::zoo_delete(handle_.get(), mine_.c_str(), -1), "cannot release");
}

std::string zookeeper_session::name_before_mine() {
    String_vector places{};
    check(::zoo_get_children(handle_.get(), lock_.c_str(), 0, &places), "cannot list the places");
    const std::string mine = mine_.substr(lock_.size() + 1);
    std::string before;
    for (int i = 0; i < places.count; ++i) {
        const std::string each = places.data[i];
        if (each.starts_with("read-")) continue;
        if (number_in(each) < number_in(mine) && number_in(each) > number_in(before)) before = each;
    }
    ::deallocate_String_vector(&places);
    return before;
}

void zookeeper_session::await_end_of(const std::string& path) {
    gone_ = promise{};
    int size = 0;
    // A read instead of an existence check, which would leave a watch behind for a missing node.
    const int there =
        ::zoo_wget(handle_.get(), path.c_str(), when_gone, &gone_, nullptr, &size, nullptr);
    if (there == ZNONODE) return;
    check(there, "cannot watch the place before ours");
    if (gone_.get_future().wait_for(patience) != std::future_status::ready) {
        throw std::runtime_error{"ZooKeeper: waited for a minute"};
    }
}

namespace {

class lock_worker final : public worker {
public:
    lock_worker(const std::string& host, const std::string& name,
                zookeeper_session::node kind = zookeeper_session::node::lock)
        : session_{host, name, kind} {}
    void turn() override {
        session_.acquire();
        session_.release();
    }

private:
    zookeeper_session session_;
};

class queue_contender final : public handoff::contender {
public:
    queue_contender(const std::string& host, const std::string& lock, const handoff::entrant& who)
        : session_{host, lock}, statements_{who.statements} {}
    void acquire() override {
        statements_ += 2;  // a node and a list; waiters need more
        session_.acquire();
    }
    void release() override {
        ++statements_;
        session_.release();
    }

private:
    zookeeper_session session_;
    std::atomic<std::uint64_t>& statements_;
};

}  // namespace

std::unique_ptr<worker> zookeeper_lock(const std::string& host, const std::string& name) {
    return std::make_unique<lock_worker>(host, name);
}

std::unique_ptr<worker> zookeeper_read_lock(const std::string& host, const std::string& name) {
    return std::make_unique<lock_worker>(host, name, zookeeper_session::node::read);
}

handoff::contest zookeeper_queue(const std::string& host, const std::string& tag) {
    return {"ZooKeeper, recipe", [=](const handoff::entrant& who) {
                return std::make_unique<queue_contender>(host, tag, who);
            }};
}

}  // namespace bench
