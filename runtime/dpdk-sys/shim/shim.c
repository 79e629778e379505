/* See shim.h. */
#define _GNU_SOURCE
#include "shim.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <rte_log.h>
#include <rte_memcpy.h>

/* All three are used under the lock of the stream. */
static FILE *log_stream;
static bool log_kept;
static char log_line[256];

static ssize_t log_write(void *cookie, const char *bytes, size_t size)
{
    (void)cookie;
    if (!log_kept) {
        fwrite(bytes, 1, size, stderr);
    } else if (log_line[0] == '\0') {
        size_t length = 0;
        while (length < size && length < sizeof(log_line) - 1 && bytes[length] != '\n')
            length++;
        memcpy(log_line, bytes, length);
        log_line[length] = '\0';
    }
    return (ssize_t)size;
}

void pannier_log_keep(void)
{
    if (log_stream == NULL) {
        cookie_io_functions_t functions = { .write = log_write };
        log_stream = fopencookie(NULL, "w", functions);
        if (log_stream == NULL || rte_openlog_stream(log_stream) != 0)
            return;
    }
    flockfile(log_stream);
    log_line[0] = '\0';
    log_kept = true;
    funlockfile(log_stream);
}

void pannier_log_first(char *line, size_t size)
{
    line[0] = '\0';
    if (log_stream == NULL)
        return;
    flockfile(log_stream);
    snprintf(line, size, "%s", log_line);
    log_kept = false;
    funlockfile(log_stream);
}

int pannier_processor(void)
{
    return sched_getcpu();
}

int pannier_errno(void)
{
    return rte_errno;
}

int pannier_start(uint16_t port, struct rte_mempool *pool, uint16_t descriptors, bool *chains)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = { 0 };
    uint16_t rx = descriptors, tx = descriptors;
    int error = rte_eth_dev_info_get(port, &info);

    if (error != 0)
        return error;
    conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    *chains = conf.txmode.offloads != 0;
    if ((error = rte_eth_dev_configure(port, 1, 1, &conf)) != 0 ||
        (error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx)) != 0 ||
        (error = rte_eth_rx_queue_setup(port, 0, rx, SOCKET_ID_ANY, NULL, pool)) != 0 ||
        (error = rte_eth_tx_queue_setup(port, 0, tx, SOCKET_ID_ANY, NULL)) != 0 ||
        (error = rte_eth_dev_start(port)) != 0)
        return error;
    error = rte_eth_promiscuous_enable(port);
    return error == -ENOTSUP ? 0 : error;
}

static void describe(struct rte_mbuf *mbuf, struct pannier_piece *piece)
{
    piece->mbuf = mbuf;
    piece->bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);
    piece->length = mbuf->data_len;
    piece->before = 0;
    piece->behind = 0;
    piece->more = mbuf->nb_segs - 1;
}

uint16_t pannier_rx_burst(uint16_t port, struct rte_mempool *pool, uint32_t reserve, struct pannier_piece *pieces,
                          uint16_t most)
{
    struct rte_mbuf *mbufs[most];
    uint16_t count = rte_eth_rx_burst(port, 0, mbufs, most);
    bool lends = count > 0 && rte_mempool_get_ops(pool->ops_index)->get_count(pool) > reserve;

    for (uint16_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = mbufs[i];
        describe(mbuf, &pieces[i]);
        rte_prefetch0(pieces[i].bytes);
        if (lends && mbuf->pool == pool && mbuf->nb_segs == 1 && RTE_MBUF_DIRECT(mbuf) && rte_mbuf_refcnt_read(mbuf) == 1) {
            pieces[i].before = mbuf->data_off;
            pieces[i].behind = rte_pktmbuf_tailroom(mbuf);
        }
    }
    return count;
}

void pannier_next(struct pannier_piece *piece)
{
    uint16_t more = piece->more - 1;

    describe(piece->mbuf->next, piece);
    piece->more = more;
}

void pannier_free(struct rte_mbuf *mbuf)
{
    rte_pktmbuf_free(mbuf);
}

/* Copies a frame that is too long for `head` into a chain; false where the pool runs out of mbufs. */
static bool fill_chain(struct rte_mempool *pool, const struct pannier_frame *frame, struct rte_mbuf *head)
{
    struct rte_mbuf *last = head;
    uint32_t copied = 0;

    for (;;) {
        uint16_t piece = RTE_MIN(frame->length - copied, (uint32_t)rte_pktmbuf_tailroom(last));
        rte_memcpy(rte_pktmbuf_mtod(last, void *), frame->bytes + copied, piece);
        last->data_len = piece;
        copied += piece;
        if (copied == frame->length)
            break;
        last->next = rte_pktmbuf_alloc(pool);
        if (last->next == NULL)
            return false;
        last = last->next;
        head->nb_segs++;
    }
    head->pkt_len = frame->length;
    return true;
}

/* A fresh mbuf, or chain of mbufs, with a copy of the frame; NULL where the pool runs out of mbufs. */
static struct rte_mbuf *copy(struct rte_mempool *pool, const struct pannier_frame *frame)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

    if (mbuf == NULL)
        return NULL;
    if (unlikely(frame->length > rte_pktmbuf_tailroom(mbuf))) {
        if (fill_chain(pool, frame, mbuf))
            return mbuf;
        rte_pktmbuf_free(mbuf);
        return NULL;
    }
    mbuf->data_len = frame->length;
    mbuf->pkt_len = frame->length;
    rte_memcpy(rte_pktmbuf_mtod(mbuf, void *), frame->bytes, frame->length);
    return mbuf;
}

uint16_t pannier_fill(struct rte_mempool *pool, const struct pannier_frame *frames, struct rte_mbuf **mbufs,
                      uint16_t count)
{
    uint16_t filled = 0;

    for (uint16_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = frames[i].mbuf;
        if (mbuf == NULL) {
            mbuf = copy(pool, &frames[i]);
            if (mbuf == NULL)
                continue;
        } else {
            mbuf->data_off = frames[i].bytes - (const uint8_t *)mbuf->buf_addr;
            mbuf->data_len = frames[i].length;
            mbuf->pkt_len = frames[i].length;
            mbuf->ol_flags = 0;
        }
        mbufs[filled++] = mbuf;
    }
    return filled;
}

uint16_t pannier_tx_burst(uint16_t port, struct rte_mbuf **mbufs, uint16_t count)
{
    return rte_eth_tx_burst(port, 0, mbufs, count);
}
