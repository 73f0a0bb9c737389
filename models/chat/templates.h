/* SPDX-License-Identifier: Apache-2.0
 *
 * The embedded texts of templates/NAME.jinja, each ended by a NUL. */
#ifndef TX_CHAT_TEMPLATES_H
#define TX_CHAT_TEMPLATES_H

/* qwen is Qwen2.5's. qwen2 is also Qwen1.5's and differs in its system prompt. mistral is that of 7B-Instruct v0.1 and
 * v0.2. alpaca has Stanford Alpaca's prompts. CMakeLists.txt has the same list. */
#define TX_CHAT_TEMPLATES(X) X(chatml) X(qwen) X(qwen2) X(llama2) X(llama3) X(mistral) X(gemma) X(zephyr) X(alpaca)

#define X(name) extern const unsigned char tx_chat_template_##name[];
TX_CHAT_TEMPLATES(X)
#undef X

#endif
