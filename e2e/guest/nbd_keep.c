/* nbd_keep ADDRESS PORT EXPORT: makes /dev/nbd0 of an export, and gives the kernel a new connection
 * whenever it has lost the one that it has. The kernel keeps its requests meanwhile, for which it has to
 * be asked by netlink, as no nbd-client does: it knows no time-out of dead connections. */
#include <arpa/inet.h>
#include <endian.h>
#include <linux/genetlink.h>
#include <linux/nbd-netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEAD_CONNECTION_SECONDS 600

static char message[512];
static size_t length;

static void require(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static struct nlattr *put(int type, const void *data, size_t size)
{
    struct nlattr *attribute = (void *)(message + length);
    attribute->nla_type = type;
    attribute->nla_len = NLA_HDRLEN + size;
    if (size)
        memcpy(attribute + 1, data, size);
    length += NLA_ALIGN(attribute->nla_len);
    return attribute;
}

static void put_u64(int type, uint64_t value) { put(type, &value, sizeof value); }

static void put_u32(int type, uint32_t value) { put(type, &value, sizeof value); }

static void begin(int type, int command)
{
    memset(message, 0, sizeof message);
    struct nlmsghdr *header = (void *)message;
    header->nlmsg_type = type;
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    struct genlmsghdr *generic = NLMSG_DATA(header);
    generic->cmd = command;
    generic->version = 1;
    length = NLMSG_HDRLEN + GENL_HDRLEN;
}

static void put_connection(int connection)
{
    struct nlattr *all = put(NBD_ATTR_SOCKETS | NLA_F_NESTED, NULL, 0);
    struct nlattr *one = put(NBD_SOCK_ITEM | NLA_F_NESTED, NULL, 0);
    put_u32(NBD_SOCK_FD, connection);
    all->nla_len = message + length - (char *)all;
    one->nla_len = message + length - (char *)one;
}

/* Returns the identifier of a family, where the answer has one. */
static int ask(int netlink)
{
    ((struct nlmsghdr *)message)->nlmsg_len = length;
    require(send(netlink, message, length, 0) == (ssize_t)length, "send");
    for (int family = 0;;) {
        char answer[8192];
        int left = recv(netlink, answer, sizeof answer, 0);
        require(left > 0, "recv");
        for (struct nlmsghdr *m = (void *)answer; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type == NLMSG_ERROR) {
                int code = -((struct nlmsgerr *)NLMSG_DATA(m))->error;
                if (code)
                    fprintf(stderr, "netlink: %s\n", strerror(code));
                return code ? -1 : family;
            }
            char *end = (char *)m + m->nlmsg_len, *at = (char *)NLMSG_DATA(m) + GENL_HDRLEN;
            while (m->nlmsg_type == GENL_ID_CTRL && at < end) {
                struct nlattr *attribute = (void *)at;
                if (attribute->nla_type == CTRL_ATTR_FAMILY_ID)
                    family = *(uint16_t *)(attribute + 1);
                at += NLA_ALIGN(attribute->nla_len);
            }
        }
    }
}

/* A connection past its negotiation, or -1. */
static int connect_to(char **argv, uint64_t *size, uint16_t *flags)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    struct __attribute__((packed)) {
        char magic[16];
        uint16_t flags;
    } greeting;
    struct __attribute__((packed)) {
        uint32_t flags;
        char magic[8];
        uint32_t option, length;
        char name[64];
    } choice = {htonl(3), "IHAVEOPT", htonl(1), htonl(strlen(argv[3])), ""};
    struct __attribute__((packed)) {
        uint64_t size;
        uint16_t flags;
    } export;
    size_t wanted = sizeof choice - sizeof choice.name + strlen(argv[3]);
    strncpy(choice.name, argv[3], sizeof choice.name);
    if (connect(connection, (void *)&address, sizeof address) ||
        recv(connection, &greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting ||
        memcmp(greeting.magic, "NBDMAGICIHAVEOPT", 16) ||
        send(connection, &choice, wanted, MSG_NOSIGNAL) != (ssize_t)wanted ||
        recv(connection, &export, sizeof export, MSG_WAITALL) != sizeof export) {
        close(connection);
        return -1;
    }
    *size = be64toh(export.size);
    *flags = ntohs(export.flags);
    return connection;
}

int main(int argc, char **argv)
{
    require(argc == 4, "usage");
    uint64_t size;
    uint16_t flags;
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
    require(netlink >= 0, "socket");
    begin(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    put(CTRL_ATTR_FAMILY_NAME, "nbd", 4);
    int family = ask(netlink);
    require(family > 0, "no family nbd");
    int connection = connect_to(argv, &size, &flags);
    require(connection >= 0, "connect");
    begin(family, NBD_CMD_CONNECT);
    put_u32(NBD_ATTR_INDEX, 0);
    put_u64(NBD_ATTR_SIZE_BYTES, size);
    put_u64(NBD_ATTR_BLOCK_SIZE_BYTES, 4096);
    put_u64(NBD_ATTR_SERVER_FLAGS, flags);
    put_u64(NBD_ATTR_DEAD_CONN_TIMEOUT, DEAD_CONNECTION_SECONDS);
    put_connection(connection);
    require(ask(netlink) >= 0, "NBD_CMD_CONNECT");
    for (;;) {
        struct pollfd lost = {.fd = connection, .events = POLLRDHUP};
        require(poll(&lost, 1, -1) == 1, "poll");
        close(connection);
        /* The kernel, too, sees that it is lost. */
        do
            sleep(1);
        while ((connection = connect_to(argv, &size, &flags)) < 0);
        begin(family, NBD_CMD_RECONFIGURE);
        put_u32(NBD_ATTR_INDEX, 0);
        put_connection(connection);
        require(ask(netlink) >= 0, "NBD_CMD_RECONFIGURE");
        puts("a new connection");
        fflush(stdout);
    }
}
