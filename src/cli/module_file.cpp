#include "cli/module_file.hpp"

#include "cli/descriptor.hpp"
#include "cli/exit_code.hpp"
#include <rowlock/version.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::cli {
namespace {

/// As many symbolic links as the kernel follows.
constexpr int most_links = 40;

[[noreturn]] void refuse(const std::filesystem::path& what, const std::string& why) {
    throw failure{misconfigured,
                  fmt::format("a part of rowlock is not loaded: {} {}", what.string(), why)};
}

/// The Debian package of a module has the name of its file.
std::string missing(const std::string& file) {
    const int error = errno;
    return fmt::format("cannot be opened ({}): install {} of the same version",
                       std::strerror(error), std::filesystem::path{file}.stem().string());
}

/// root, ourselves, and the owner of this executable, who could have changed the executable itself.
class trusted_owners {
public:
    explicit trusted_owners(const std::string& proc) {
        struct stat executable {};
        if (::stat((proc + "/self/exe").c_str(), &executable) == 0) owner_ = executable.st_uid;
    }
    [[nodiscard]] bool has(uid_t user) const {
        return user == 0 || user == ::geteuid() || user == owner_;
    }

private:
    uid_t owner_ = 0;
};

/// Walks the path to a folder, each step on the opened descriptor of the previous one.
class walk {
public:
    walk(const module_folder& to, const std::string& file, const trusted_owners& trusted)
        : trusted_{trusted},
          file_{file},
          others_{to.group_may_write ? mode_t{S_IWOTH} : S_IWGRP | S_IWOTH} {
        if (!to.path.is_absolute())
            refuse(to.path, "is not an absolute path: install rowlock anew");
        push(to.path);
        start();
        while (!rest_.empty()) step();
        // Here a file could be added beside others, which the sticky bit does not forbid.
        if ((seen_.st_mode & others_) != 0) {
            refuse(at_, "may be written by other users: take that right away (chmod go-w)");
        }
    }

    [[nodiscard]] int folder() const noexcept { return here_.get(); }
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return at_; }

    /// @throws failure if another user owns it or, unless it is a folder with the sticky bit, may
    /// write it
    void check(const struct stat& what, const std::filesystem::path& name) const {
        if (!trusted_.has(what.st_uid)) {
            refuse(name, fmt::format("belongs to user {}: give it to root, or install rowlock anew",
                                     what.st_uid));
        }
        const bool sticky = S_ISDIR(what.st_mode) && (what.st_mode & S_ISVTX) != 0;
        if (!S_ISLNK(what.st_mode) && !sticky && (what.st_mode & others_) != 0) {
            refuse(name, "may be written by other users: take that right away (chmod go-w)");
        }
    }

private:
    void push(const std::filesystem::path& before) {
        std::deque<std::string> parts;
        for (const auto& part : before.relative_path()) {
            if (!part.empty() && part != ".") parts.push_back(part);
        }
        rest_.insert(rest_.begin(), parts.begin(), parts.end());
    }

    void start() {
        here_ = descriptor{::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
        at_ = "/";
        scan(here_.get());
    }

    void scan(int folder) {
        if (folder < 0 || ::fstat(folder, &seen_) != 0) refuse(at_, missing(file_));
        check(seen_, at_);
    }

    void step() {
        const std::string name = rest_.front();
        rest_.pop_front();
        const auto next = name == ".." ? at_.parent_path() : at_ / name;
        descriptor opened{::openat(here_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
        at_ = next;
        scan(opened.get());
        if (S_ISLNK(seen_.st_mode)) return follow(opened.get());
        if (!S_ISDIR(seen_.st_mode)) refuse(at_, "is not a folder: install rowlock anew");
        here_ = std::move(opened);
    }

    void follow(int link) {
        if (++links_ > most_links) refuse(at_, "is a cycle of symbolic links");
        std::array<char, PATH_MAX> text{};
        const auto size = ::readlinkat(link, "", text.data(), text.size());
        if (size <= 0) refuse(at_, missing(file_));
        const std::filesystem::path to{std::string{text.data(), static_cast<std::size_t>(size)}};
        push(to);
        if (to.is_absolute()) return start();
        at_ = at_.parent_path();
    }

    const trusted_owners& trusted_;
    const std::string& file_;
    mode_t others_;
    std::deque<std::string> rest_;
    std::filesystem::path at_;
    descriptor here_;
    struct stat seen_ {};
    int links_ = 0;
};

void require_proc(const std::string& proc) {
    struct statfs found {};
    if (::statfs(proc.c_str(), &found) == 0 && found.f_type == PROC_SUPER_MAGIC) return;
    refuse(proc, "is not there: a module is loaded only by its descriptor (mount /proc)");
}

}  // namespace

void* load_module(const module_folder& from, const std::string& file, const std::string& proc) {
    require_proc(proc);
    const trusted_owners trusted{proc};
    const walk to{from, file, trusted};
    const auto name = to.path() / file;
    descriptor opened{
        ::openat(to.folder(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!opened && errno == ELOOP) refuse(name, "is a symbolic link: install rowlock anew");
    if (!opened) refuse(name, missing(file));
    struct stat what {};
    if (::fstat(opened.get(), &what) != 0 || !S_ISREG(what.st_mode)) {
        refuse(name, "is not a regular file: install rowlock anew");
    }
    to.check(what, name);
    const auto path = fmt::format("{}/self/fd/{}", proc, opened.get());
    void* const loaded = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (loaded != nullptr) {
        // dlopen() takes a path that it has seen for the same file: the number must stay taken.
        static std::vector<descriptor> loaded_files;
        loaded_files.push_back(std::move(opened));
        return loaded;
    }
    const char* const why = ::dlerror();
    throw failure{misconfigured, fmt::format("{} could not be loaded, install what it needs: {}",
                                             name.string(), why == nullptr ? file.c_str() : why)};
}

const void* symbol_in(void* loaded, const char* name) {
    return ::dlsym(loaded, name);
}

void refuse_version(const std::string& file) {
    throw failure{misconfigured, fmt::format("{} does not belong to rowlock {}: install both from "
                                             "one build",
                                             file, version_string)};
}

}  // namespace rowlock::cli
