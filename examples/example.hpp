#pragma once

#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

/// What every example needs first: a database with rowlock's tables in it.
namespace example {

/// The database whose URL is the program's first argument; without one, a SQLite file of our own
/// that goes away with this object.
class database {
public:
    database(int argc, char** argv) : source_{rowlock::open(argc > 1 ? argv[1] : own_file())} {
        rowlock::migrate(source_);
    }
    database(const database&) = delete;
    database& operator=(const database&) = delete;
    ~database() {
        std::error_code ignored;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    }

    [[nodiscard]] const rowlock::sql::connection_source& source() const { return source_; }

private:
    std::string own_file() {
        folder_ = (std::filesystem::temp_directory_path() / "rowlock-example-XXXXXX").string();
        if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
        return "sqlite:" + folder_ + "/locks.db";
    }

    std::string folder_;
    rowlock::sql::connection_source source_;
};

/// main(): runs `body` and says what went wrong.
template <typename Body>
int run(int argc, char** argv, Body body) {
    try {
        const database shared{argc, argv};
        body(shared.source());
        return EXIT_SUCCESS;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return EXIT_FAILURE;
    }
}

}  // namespace example
