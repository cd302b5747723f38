#include "driver/sqlite_fixture.hpp"

#include "driver/sqlite_path.hpp"
#include <rowlock/driver/sqlite.hpp>

#include <sqlite3.h>

#include <stdexcept>

namespace contract {
namespace {

class sqlite_handle final : public borrowed_handle {
public:
    sqlite_handle() {
        if (sqlite3_open(sqlite_path("native.db").c_str(), &handle_) != SQLITE_OK) {
            throw std::runtime_error{sqlite3_errmsg(handle_)};
        }
    }
    sqlite_handle(const sqlite_handle&) = delete;
    sqlite_handle& operator=(const sqlite_handle&) = delete;
    ~sqlite_handle() override { sqlite3_close(handle_); }

    std::unique_ptr<rowlock::sql::connection> ref() override {
        return std::make_unique<rowlock::sqlite::connection_ref>(handle_);
    }

    std::string run(const std::string& text) override {
        std::string cell;
        const auto first = [](void* to, int, char** cells, char**) {
            auto& kept = *static_cast<std::string*>(to);
            if (kept.empty() && cells[0] != nullptr) kept = cells[0];
            return 0;
        };
        if (sqlite3_exec(handle_, text.c_str(), first, &cell, nullptr) != SQLITE_OK) {
            throw std::runtime_error{sqlite3_errmsg(handle_)};
        }
        return cell;
    }

private:
    sqlite3* handle_ = nullptr;
};

}  // namespace

rowlock::sql::connection_source sqlite_fixture::source() {
    return rowlock::sqlite::open("sqlite:" + sqlite_path("native.db") + "?synchronous=normal");
}

rowlock::sql::connection_source sqlite_fixture::source_with(const server_change&) {
    throw std::logic_error{"SQLite has no server"};
}

std::uint16_t sqlite_fixture::server_port() {
    throw std::logic_error{"SQLite has no server"};
}

std::unique_ptr<borrowed_handle> sqlite_fixture::borrow() {
    return std::make_unique<sqlite_handle>();
}

}  // namespace contract
