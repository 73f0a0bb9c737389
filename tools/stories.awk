# SPDX-License-Identifier: Apache-2.0
#
# awk -f stories.awk: writes short stories for tools/quickstart, the same at every call. Their few words and simple
# sentences are what a small model learns in two minutes.

# pick LIST: a random word of a list that is separated by commas. The generator is Park and Miller's, because rand()
# differs between the implementations of awk.
function pick(list,    words, count)
{
    count = split(list, words, ",")
    seed = (seed * 16807) % 2147483647
    return words[1 + int(seed / 2147483647 * count)]
}

function story(    who, name, she, her, place, thing, friend, mood)
{
    who = pick("fox,cat,dog,bear,mouse,bird,girl,boy,rabbit,duck")
    name = pick("Mia,Tom,Lily,Ben,Anna,Max,Rosa,Sam,Ella,Leo")
    she = name ~ /^(Mia|Lily|Anna|Rosa|Ella)$/ ? "she" : "he"
    her = she == "she" ? "her" : "his"
    place = pick("the forest,the garden,the park,a small house,a green valley,the old town")
    thing = pick("a red ball,a blue hat,a big apple,a little boat,a shiny stone,a warm cake,a small key")
    friend = pick("owl,frog,bee,horse,turtle,squirrel")
    mood = pick("happy,glad,proud,full of joy")
    printf "Once upon a time there was a %s %s called %s. ", pick("little,young,kind,funny,brave"), who, name
    printf "%s lived in %s with ", she == "she" ? "She" : "He", place
    printf "%s %s. ", her, pick("mother,father,brother,sister,family")
    printf "One %s day %s %s %s. ", pick("sunny,rainy,cold,warm,windy"), name, pick("found,saw,lost,made"), thing
    printf "%s %s very %s. ", she == "she" ? "She" : "He", pick("was,felt"), pick("happy,excited,surprised,curious")
    printf "Then %s met %s %s. ", she, friend == "owl" ? "an" : "a", friend
    printf "\"%s\" said the %s. ", pick("Do you want to play?,Can you help me?,Where are you going?,Is that yours?"), friend
    printf "\"%s\" said %s. ", pick("Yes!,Of course!,Come with me!,Let us go together!"), name
    printf "They %s ", pick("played,walked,sang,danced,ran")
    printf "%s until ", pick("together,in the sun,under a tall tree,by the river")
    printf "%s. ", pick("the evening,it was dark,the moon came out,it was time for dinner")
    printf "At the end of the day %s went home and was %s. ", name, mood
    printf "%s\n", pick("From that day on they were friends.,They met again the next day.,It was a very good day.")
}

BEGIN {
    seed = 42
    for (i = 0; i < 2000; i++)
        story()
}
