/* SPDX-License-Identifier: Apache-2.0
 *
 * The little of XML that NCCL writes: elements with attributes, no text. Strict: what is not well formed is refused
 * with its line. */
#ifndef TX_COMM_TOPOLOGY_XML_H
#define TX_COMM_TOPOLOGY_XML_H

#include "tx.h"

#define TX_XML_DEPTH 64
#define TX_XML_ATTRIBUTES 64

/* A piece of the text; not followed by a NUL. */
typedef struct tx_xml_piece {
    const char *text;
    size_t size;
} tx_xml_piece;

typedef enum tx_xml_event { TX_XML_OPEN, TX_XML_CLOSE, TX_XML_END } tx_xml_event;

typedef struct tx_xml {
    const char *at;
    int64_t line;
    tx_xml_event event;
    tx_xml_piece name; /* of the element that opens or closes */
    tx_xml_piece attributes[TX_XML_ATTRIBUTES], values[TX_XML_ATTRIBUTES];
    int32_t attribute_count;
    tx_xml_piece open[TX_XML_DEPTH];
    int32_t depth;
    bool closing; /* the element that opened was <empty/> */
} tx_xml;

/* `text` ends with a NUL, outlives the reader and holds no other NUL. */
void tx_xml_begin(tx_xml *xml, const char *text);
/* The next event; a failure is TX_FORMAT and says the line. */
tx_status tx_xml_next(tx_xml *xml);
bool tx_xml_is(const tx_xml *xml, const char *name);
/* The value of an attribute of the element that opened, with its entities replaced; "" where there is none. One that
 * does not fit is cut off. */
const char *tx_xml_get(const tx_xml *xml, const char *attribute, char *text, size_t size);
/* Records "line N: ..." and returns TX_FORMAT. */
tx_status tx_xml_fail(const tx_xml *xml, const char *format, ...) TX_PRINTF(2, 3);

#endif
